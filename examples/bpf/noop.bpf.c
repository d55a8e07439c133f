/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The least that a program can do: the built-in policy decides. For measuring what it costs to ask. */
#include "lowtide_bpf.h"

LOWTIDE_THROTTLE(noop)
{
	(void)ctx;
	return LOWTIDE_NO_OPINION;
}

LOWTIDE_LICENSE("Dual MIT/Apache-2.0");
