//! Who is beside a bystander.

use crate::error::Result;

/// Somebody beside the bystander, who has a turn in each of its rounds.
pub trait Company: Send {
    /// Does what it does, without waiting.
    ///
    /// # Errors
    /// It cannot go on.
    fn turn(&mut self) -> Result<()>;
}
