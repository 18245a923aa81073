//! The attackers, and for each one somebody of the same kind who behaves well.

use super::super::own::Daemon;
use super::company::Company;
use super::{programs, storms, users, vmm};
use crate::error::Result;

/// Nobody.
pub struct Nobody;

impl Company for Nobody {
    fn turn(&mut self) -> Result<()> {
        Ok(())
    }
}

type Make = fn(&Daemon) -> Result<Box<dyn Company>>;

/// An attack, and what it is compared with.
pub struct Row {
    /// The variant's name.
    pub name: &'static str,
    /// The attacker.
    pub attacker: Make,
    /// Who behaves well.
    pub well_behaved: Make,
    /// Whether the bystander sends each other frame to the one beside it.
    pub is_talked_to: bool,
}

fn nobody(_: &Daemon) -> Result<Box<dyn Company>> {
    Ok(Box::new(Nobody))
}

const fn sends(name: &'static str, attacker: Make) -> Row {
    Row { name, attacker, well_behaved: programs::to_a_partner, is_talked_to: false }
}

const fn is_quiet(name: &'static str, attacker: Make) -> Row {
    Row { name, attacker, well_behaved: nobody, is_talked_to: false }
}

const fn receives(name: &'static str, attacker: Make) -> Row {
    Row { name, attacker, well_behaved: programs::reads, is_talked_to: true }
}

const fn virtual_machine(name: &'static str, attacker: Make) -> Row {
    Row { name, attacker, well_behaved: vmm::plain, is_talked_to: false }
}

/// All of them.
pub const TABLE: &[Row] = &[
    sends("flood-receiver", programs::to_the_receiver),
    sends("flood-broadcast", programs::to_everybody),
    sends("flood-unknown", programs::to_nobody),
    sends("flood-addresses", programs::from_many),
    is_quiet("doorbell", storms::rings),
    is_quiet("reattach", storms::reattaches),
    is_quiet("connect", storms::connects),
    is_quiet("refused", storms::is_refused),
    receives("never-reads", programs::never_reads),
    receives("lossless-never-reads", programs::lossless_never_reads),
    receives("lossless-slow", programs::lossless_slow),
    receives("blocked-wakeup", programs::blocks),
    virtual_machine("vhost-chains", vmm::chains),
    virtual_machine("vhost-indirect", vmm::indirect),
    is_quiet("vhost-kicks", vmm::kicks),
    Row { name: "holes", attacker: users::makes_holes, well_behaved: programs::reads, is_talked_to: true },
    Row { name: "watchers", attacker: users::is_watched, well_behaved: users::is_woken, is_talked_to: true },
    Row { name: "filtering-sockets", attacker: users::is_heard, well_behaved: users::is_alone, is_talked_to: false },
    Row { name: "rules", attacker: users::has_rules, well_behaved: users::has_no_rules, is_talked_to: false },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each variant has a row, and each row two variants.
    #[test]
    fn rows() {
        let mut names: Vec<_> = super::super::SCENARIO.variants.iter().map(|variant| variant.name).collect();
        for row in TABLE {
            let single = format!("{}-p99", row.name);
            names.retain(|name| *name != row.name && *name != single);
        }
        assert!(names.is_empty(), "{names:?}");
        assert_eq!(super::super::SCENARIO.variants.len(), 2 * TABLE.len());
    }
}
