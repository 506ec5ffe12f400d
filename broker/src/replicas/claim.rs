//! What to do with the Lease that has our name. Pure.
//!
//! A Lease says that a replica is there, and nothing else: nobody needs it to work. Two processes
//! that call themselves the same are still a mistake, which must not end in a fight over it.

use std::time::Duration;

use super::presence::{LEASE, Presence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// There is none.
    Create,
    /// It is ours, or that of a process that is no more.
    Take,
    /// Another process has it, and lives for all we know.
    Leave,
}

/// Decides by the Lease that was found, and for how long we have seen it unchanged. `holder` is this
/// very process, `address` where it is reached.
pub(super) fn claim(
    found: Option<&Presence>,
    holder: &str,
    address: &str,
    unchanged: Duration,
) -> Claim {
    match found {
        None => Claim::Create,
        Some(lease) if lease.holder == holder || lease.holder.is_empty() => Claim::Take,
        // It listened where we listen now, so it is our predecessor.
        Some(lease) if lease.address.as_deref() == Some(address) => Claim::Take,
        Some(_) if unchanged >= LEASE => Claim::Take,
        Some(_) => Claim::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, address: &str) -> Presence {
        Presence {
            replica: "a".into(),
            holder: holder.to_owned(),
            address: Some(address.into()),
            renewed: "then".to_owned(),
            lasts: LEASE,
            report: std::sync::Arc::default(),
        }
    }

    #[test]
    fn a_lease_is_made_renewed_and_taken_from_the_dead_but_not_from_the_living() {
        let decide = |found: Option<&Presence>, seconds| {
            claim(found, "us", "here:1", Duration::from_secs(seconds))
        };
        assert_eq!(decide(None, 0), Claim::Create);
        assert_eq!(decide(Some(&lease("us", "here:1")), 0), Claim::Take);
        assert_eq!(decide(Some(&lease("us", "elsewhere:1")), 0), Claim::Take, "we have moved");
        assert_eq!(decide(Some(&lease("", "elsewhere:1")), 0), Claim::Take, "nobody's");
        assert_eq!(decide(Some(&lease("another", "here:1")), 0), Claim::Take, "before us");
        assert_eq!(decide(Some(&lease("another", "elsewhere:1")), 0), Claim::Leave);
        assert_eq!(decide(Some(&lease("another", "elsewhere:1")), 14), Claim::Leave);
        assert_eq!(decide(Some(&lease("another", "elsewhere:1")), 15), Claim::Take);
    }
}
