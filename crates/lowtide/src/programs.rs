//! Programs that decide about the limits of tenants, as the runtime holds them. Without the feature
//! `bpf` there are none, and nothing of a virtual machine is linked.

#[cfg(feature = "bpf")]
pub(crate) use lowtide_bpf::Programs;
#[cfg(not(feature = "bpf"))]
pub(crate) use none::Programs;

#[cfg(not(feature = "bpf"))]
mod none {
    /// No program. It has no value.
    #[derive(Debug)]
    pub(crate) enum Programs {}

    /// Reclaim that a program requests.
    pub(crate) struct Request {
        pub(crate) group: u64,
        pub(crate) pages: u64,
    }

    impl Programs {
        pub(crate) const fn take_requests(&self) -> Vec<Request> {
            match *self {}
        }
    }
}
