//! What `madvise(2)` takes.

macro_rules! advice {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum $name {
            $($(#[$each])* $variant = libc::$value,)*
        }

        impl $name {
            /// Whether this kernel knows it.
            #[must_use]
            pub fn is_supported(self) -> bool {
                // SAFETY: advice about no bytes changes nothing.
                unsafe { libc::madvise(std::ptr::null_mut(), 0, self as i32) == 0 }
            }
        }
    };
}

advice! {
    /// Advice that changes no byte. `madvise(2)` has the whole story of each.
    Advice {
        /// What is read in order is read ahead.
        Normal = MADV_NORMAL,
        /// Nothing is read ahead.
        Random = MADV_RANDOM,
        /// It is read in order.
        Sequential = MADV_SEQUENTIAL,
        /// Soon wanted.
        WillNeed = MADV_WILLNEED,
        /// Children of `fork` do not have it.
        DontFork = MADV_DONTFORK,
        /// They have it again.
        DoFork = MADV_DOFORK,
        /// Equal pages may be one.
        Mergeable = MADV_MERGEABLE,
        /// They may not.
        Unmergeable = MADV_UNMERGEABLE,
        /// Huge pages are welcome.
        HugePage = MADV_HUGEPAGE,
        /// They are not.
        NoHugePage = MADV_NOHUGEPAGE,
        /// Not part of a core dump.
        DontDump = MADV_DONTDUMP,
        /// Part of it again.
        DoDump = MADV_DODUMP,
        /// The memory is treated as broken, for tests.
        HwPoison = MADV_HWPOISON,
        /// Read before the call returns.
        PopulateRead = MADV_POPULATE_READ,
        /// Prepared for stores before the call returns.
        PopulateWrite = MADV_POPULATE_WRITE,
    }
}

advice! {
    /// Advice that may change bytes.
    UncheckedAdvice {
        /// The pages go: private ones are lost, others are as in the file.
        DontNeed = MADV_DONTNEED,
        /// Private pages may go.
        Free = MADV_FREE,
        /// A hole is made in the file.
        Remove = MADV_REMOVE,
    }
}
