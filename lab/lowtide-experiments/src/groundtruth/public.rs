//! The cases whose kernel counters are published, with the fingerprints of their op lists.
//!
//! A port of the generators is right when every case here has the number of ops and the fingerprint
//! given; the tests check that for this one.

use super::case::{Case, CaseError};

/// A published case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicCase {
    /// Its name in the table of counters.
    pub name: &'static str,
    /// Its parameters, in the form that [`Case`] parses.
    pub parameters: &'static str,
    /// The number of ops.
    pub ops: u64,
    /// The [`op_hash`](super::op_hash) of the ops.
    pub hash: u64,
}

impl PublicCase {
    /// The published case called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PUBLIC.iter().find(|case| case.name == name)
    }

    /// The case itself.
    ///
    /// # Errors
    /// None for the entries of [`PUBLIC`]; for an entry made by hand, those of parsing a [`Case`].
    pub fn case(&self) -> Result<Case, CaseError> {
        self.parameters.parse()
    }
}

/// Every published case.
pub const PUBLIC: [PublicCase; 9] = [
    PublicCase {
        name: "z1",
        parameters: "kind=zipf s=0.99 F=65536 N=600000 mem=16384 seed=1",
        ops: 600_000,
        hash: 0x1d94_afc0_5074_1d68,
    },
    PublicCase {
        name: "z3",
        parameters: "kind=uniform F=49152 N=200000 mem=24576 seed=3",
        ops: 200_000,
        hash: 0xc7d9_82a3_5aa5_ad84,
    },
    PublicCase {
        name: "loop",
        parameters: "kind=loop F=24576 N=122880 mem=22118 seed=4",
        ops: 122_880,
        hash: 0x8347_9ba4_ec7e_8325,
    },
    PublicCase {
        name: "mix",
        parameters: "kind=mix s=0.99 H=32768 F=163840 N=350000 scan=20 mem=16384 seed=5",
        ops: 350_000,
        hash: 0x9c47_0213_8ad7_1d1d,
    },
    PublicCase {
        name: "w5",
        parameters: "kind=zipf s=0.99 F=65536 N=500000 wf=5 mem=16384 seed=8",
        ops: 500_000,
        hash: 0x2802_8546_c572_0ea4,
    },
    PublicCase {
        name: "p0",
        parameters: "kind=zipf s=0.99 F=65536 N=500000 io=prw mem=16384 seed=1",
        ops: 500_000,
        hash: 0x47af_967e_dd2e_e4f0,
    },
    PublicCase {
        name: "af60",
        parameters: "kind=anonfile A=16384 F=32768 s=0.99 N=400000 anonpct=50 awf=50 mem=24576 \
            swap=nvme \
                     swappiness=60 seed=11",
        ops: 416_384,
        hash: 0xa103_12b3_6873_8278,
    },
    PublicCase {
        name: "high",
        parameters: "kind=uniform F=51200 N=250000 high=38400 seed=15",
        ops: 250_000,
        hash: 0x330c_e177_221d_7512,
    },
    PublicCase {
        name: "p100",
        parameters: "kind=zipf s=0.99 F=65536 N=400000 wf=100 io=prw mem=16384 seed=10",
        ops: 400_000,
        hash: 0x4809_befc_e59e_3091,
    },
];

#[cfg(test)]
mod tests {
    use super::super::op_hash;
    use super::*;

    const FIRST_OPS: [(&str, [u32; 8]); 9] = [
        ("z1", [0xdb00, 0x5fad, 0x864f, 0xde76, 0x7cc, 0xee9d, 0x76f5, 0xbd98]),
        ("z3", [0x15c8, 0x8674, 0x75b0, 0xdfd, 0x298e, 0x7a27, 0x19f2, 0xaaa2]),
        ("loop", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("mix", [0x2c06, 0x76a7, 0x8000, 0x2949, 0x6510, 0x32f7, 0x8001, 0x5f5f]),
        ("w5", [0x5a1, 0x6818, 0x7200, 0xdf7b, 0x7200, 0xe10b, 0x6b43, 0xa699]),
        ("p0", [0xdb00, 0x5fad, 0x864f, 0xde76, 0x7cc, 0xee9d, 0x76f5, 0xbd98]),
        (
            "af60",
            [
                0xc000_0000,
                0xc000_0001,
                0xc000_0002,
                0xc000_0003,
                0xc000_0004,
                0xc000_0005,
                0xc000_0006,
                0xc000_0007,
            ],
        ),
        ("high", [0x69bf, 0x9c07, 0x701a, 0x2b2f, 0x23d5, 0xb640, 0x9d92, 0x9961]),
        (
            "p100",
            [
                0x8000_c5fd,
                0x8000_3fe4,
                0x8000_6c91,
                0x8000_a878,
                0x8000_a128,
                0x8000_b024,
                0x8000_c5fd,
                0x8000_c5fd,
            ],
        ),
    ];

    #[test]
    fn every_published_op_list_is_reproduced() {
        for (name, first) in FIRST_OPS {
            let public = PublicCase::find(name).unwrap();
            let case = public.case().unwrap();
            assert_eq!(case.ops().take(8).collect::<Vec<_>>(), first, "first ops of {name}");
            assert_eq!(case.sequence.len(), public.ops, "declared length of {name}");
            assert_eq!(case.ops().count() as u64, public.ops, "length of {name}");
            assert_eq!(op_hash(case.ops()), public.hash, "hash of {name}");
            assert_eq!(case.page_ops().count() as u64, public.ops, "page ops of {name}");
        }
        assert_eq!(PublicCase::find("unheard"), None);
    }
}
