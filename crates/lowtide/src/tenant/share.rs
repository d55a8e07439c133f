//! How tenants below one tenant share its budget: in common, or each what its curve says that it
//! makes good use of.
//!
//! In common, the policy decides page by page. It does well where pages of one tenant are much like
//! those of another. Where one reads in a circle that is longer than the budget, or touches every
//! page twice, its pages look as good as any and save nothing. The curves show that: they say how
//! many misses each page more saves. So every two seconds the budget is divided by the curves of
//! the last minutes ([`lowtide_core::reuse::divide`]), and the parts become the tenants' `low`:
//! who has more than its part is reclaimed first. No part is a wall. What one does not use others
//! may, until it is needed.

/// How the tenants below one tenant share its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// The policy chooses among all their pages, and each has the `low` that was set.
    #[default]
    Common,
    /// Each has, as its `low`, the part with which the fewest accesses of all of them miss. It is
    /// computed from their [curves](crate::Tenant::curve) every two seconds, by the pager's
    /// background thread, and replaces what was set.
    ByBenefit,
}
