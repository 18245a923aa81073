//! A daemon hands all that it has over to a successor ([`give`]), or continues what another one has ([`take`]), or what
//! the service manager kept of one that is gone ([`kept`]). [`continuing`] makes ports and connections of the items.
//!
//! ```text
//! successor                       predecessor
//! Hello, with the version    ──►  refuses another version
//! starts workers, sandbox         forwards
//! Begin                      ──►
//!                            ◄──  regions and connections
//!                                 parks its workers
//!                            ◄──  all other items
//! continues them
//! READY                      ──►  if this does not come, its workers go on, as if nothing had been
//!                            ◄──  GO: it never goes on after that
//! its workers go on               ends
//! continues the connections
//! ```

pub mod continuing;
pub mod give;
pub mod kept;
pub mod take;

/// What a successor sends once it can go on.
const READY: &[u8] = b"ready";
/// The answer.
const GO: &[u8] = b"go";
