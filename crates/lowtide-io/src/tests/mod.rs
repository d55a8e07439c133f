//! One set of promises, kept by every engine.
//!
//! Each scenario is a function of the engine. It runs with io_uring and with system calls, and in
//! both cases with a descriptor for direct I/O (where the file system of the temporary directory
//! has it) and with an ordinary one. What only makes sense for rings is a test of its own, in
//! `lifetimes`.
//!
//! Where the kernel refuses io_uring, its half of the tests says so and passes.

mod lifetimes;
mod reads;
mod verdicts;
mod world;
mod writes;

use super::IoEngine;

macro_rules! scenarios {
    ($($group:ident::$name:ident)*) => {
        mod uring {
            $(#[test] fn $name() { super::$group::$name(super::IoEngine::Uring) })*
        }
        mod psync {
            $(#[test] fn $name() { super::$group::$name(super::IoEngine::Psync) })*
        }
    };
}

scenarios! {
    reads::single_reads_of_every_size
    reads::registered_and_other_memory_hold_the_same_bytes
    reads::a_read_ends_with_the_file
    reads::a_run_is_read_into_scattered_memory
    reads::a_batch_may_be_deeper_than_its_capacity
    reads::waiting_for_none_only_looks
    reads::errors_are_the_kernels
    reads::one_bad_read_spoils_no_other
    writes::a_run_is_written_from_scattered_memory
    writes::more_slices_than_one_call_takes
    writes::runs_are_written_side_by_side
    writes::a_writer_overlaps_writes_and_syncs
    writes::dropping_a_writer_waits_for_what_has_started
    verdicts::a_failure_replaces_the_transfer
    verdicts::short_transfers_are_continued
    verdicts::a_late_request_holds_up_no_other
    verdicts::waiting_for_a_hanging_device_ends
    verdicts::a_device_that_never_answers_can_be_abandoned
    lifetimes::dropping_a_batch_waits_for_the_kernel
    lifetimes::requests_nest
    lifetimes::signals_do_not_show
    lifetimes::many_threads_at_once
    lifetimes::a_backend_goes_while_its_threads_stay
}
