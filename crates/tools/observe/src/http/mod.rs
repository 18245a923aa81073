//! A small HTTP/1.1 server. Each connection carries one request without a body, and one answer, which is whole in
//! memory, or in parts with one part in memory at a time.
//!
//! The cost of a client is bounded: [`head::MAX_HEAD`] bytes of a request, [`visitors::MAX_CONNECTIONS`] threads,
//! [`connection::REQUEST_TIME`] to receive a request and [`connection::ANSWER_TIME`] to send an answer, however slow
//! the client is. For an answer in parts, the limit applies to each part, and the handler limits their number. While
//! other clients wait, the time limits are shorter.
//!
//! | module | what it is |
//! |---|---|
//! | [`head`] | a request's head: method, path, fields |
//! | [`answer`] | status, type and body |
//! | [`hosts`] | the server's names and addresses; requests to other hosts are refused |
//! | [`handler`] | turns requests into answers |
//! | [`connection`] | one connection under time limits |
//! | [`listener`] | where to listen: UNIX sockets, TCP ports, sockets of a service manager |
//! | [`visitors`] | the limit of connections, and which connection ends if it is reached |
//! | [`server`] | the loop that accepts connections, with a thread for each |

pub mod answer;
pub mod connection;
pub mod handler;
pub mod head;
pub mod hosts;
pub mod listener;
pub mod server;
pub mod visitors;
