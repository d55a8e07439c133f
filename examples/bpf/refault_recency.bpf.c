/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The refault-recency penalty that was proposed for Linux in December 2025, and not merged: who is over `high` and whose group refaulted less than
 * a second ago waits longer, up to a tenth of a second. It counts in ticks of the scheduler, and so does this program.
 *
 *     d     = ticks since the last refault, at least 1; no penalty from HZ on
 *     P     = min(HZ / d, HZ / 10)
 *     total = min(delay + P, 2 HZ)
 *
 * The quotient HZ / d has no unit and is then taken for ticks. So the same second of history costs more at a low HZ: 100 ms after a refault it is 10 ms at HZ
 * 1000, 40 ms at 250, 100 ms at 100. That is the proposal's, and kept.
 *
 * The proposal sleeps for any penalty; the rule that 10 ms are not worth it holds only without one.
 */
#include "lowtide_bpf.h"

#define NSEC 1000000000ULL

LOWTIDE_THROTTLE(refault_recency)
{
	__u64 hz = ctx->hz;
	__u64 since = ctx->since_refault_ns;
	__u64 delay = ctx->overage_delay_ns;
	__u64 penalty = 0;
	__u64 total;

	if (hz == 0 || hz > NSEC)
		return LOWTIDE_NO_OPINION;

	if (since < NSEC) {
		__u64 ticks = since * hz / NSEC;

		if (ticks == 0)
			ticks = 1;
		if (ticks < hz)
			penalty = hz / ticks;
		if (penalty > hz / 10)
			penalty = hz / 10;
	}

	/* The overage is in ticks to begin with; to the nearest, so that its way through nanoseconds loses none. */
	if (delay > LOWTIDE_DELAY_MAX_NS)
		delay = LOWTIDE_DELAY_MAX_NS;
	delay = (delay * hz + NSEC / 2) / NSEC;

	total = delay + penalty;
	if (total > 2 * hz)
		total = 2 * hz;
	if (penalty == 0 && total <= hz / 100)
		return 0;
	return total * NSEC / hz;
}

LOWTIDE_LICENSE("Dual MIT/Apache-2.0");
