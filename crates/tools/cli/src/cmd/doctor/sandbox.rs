//! Check: whether an ordinary user can run `netvale sandbox`.

use super::row::CheckRow;
use crate::cmd::sandbox::obstacle::{self, Obstacle};

const CHECK: &str = "sandbox";

/// Checks the kernel's switches that deny user namespaces to ordinary users; the switches do not affect root.
pub fn look() -> CheckRow {
    judge(obstacle::find(), rustix::process::geteuid().is_root())
}

fn judge(found: Option<Obstacle>, is_root: bool) -> CheckRow {
    match found {
        None => CheckRow::ok(CHECK, "user namespaces are permitted: `netvale sandbox` and rootless daemons can run"),
        Some(obstacle) if is_root => {
            CheckRow::ok(CHECK, format!("only root can make user namespaces: {}", obstacle.why))
        }
        Some(obstacle) => CheckRow::ok(CHECK, format!("no user namespaces: {}", obstacle.why)).advise(
            "Without them, `netvale sandbox` and daemons in namespaces of their own cannot run.",
            obstacle.remedy,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    /// Objective: a switch that denies user namespaces yields advice for an ordinary user; for root, the switch is
    /// reported without advice.
    #[test]
    fn an_obstacle_is_advice_to_ordinary_users() {
        let obstacle = Obstacle { why: "a switch is 0", remedy: "set it" };
        assert_eq!(judge(None, false).state, CheckState::Ok);
        let row = judge(Some(obstacle.clone()), false);
        assert_eq!((row.state, row.what_to_do.as_str()), (CheckState::Advice, "set it"));
        let row = judge(Some(obstacle), true);
        assert_eq!((row.state, row.found.contains("a switch is 0")), (CheckState::Ok, true));
    }
}
