//! The hand-over to a successor ([`give`]), the take-over from a predecessor ([`take`]), and the restoration of state
//! that the service manager keeps ([`kept`]). [`continuing`] turns items into ports and connections.
//!
//! ```text
//! successor                       predecessor
//! Hello, with the version    ──►  refuses another version
//! starts workers, sandbox         forwards
//! Begin                      ──►
//!                            ◄──  regions and connections
//!                                 parks its workers
//!                            ◄──  all other items
//! restores them
//! READY                      ──►  without this, it resumes as if nothing had happened
//!                            ◄──  GO: it never resumes after that
//! starts its workers              ends
//! restores the connections
//! ```

pub mod continuing;
pub mod give;
pub mod kept;
pub mod take;

/// Message of a successor that is ready.
const READY: &[u8] = b"ready";
/// The predecessor's answer; the successor serves the ports after it has received this answer.
const GO: &[u8] = b"go";
