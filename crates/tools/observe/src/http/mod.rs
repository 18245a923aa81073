//! A small HTTP/1.1 server. Each connection carries one request without a body, and one answer, which is in memory as a
//! whole, or one part at a time.
//!
//! The cost of clients is bounded: [`head::MAX_HEAD`] bytes for each request, [`visitors::MAX_CONNECTIONS`] threads,
//! and, however slow a client is, [`connection::REQUEST_TIME`] to receive its request and [`connection::ANSWER_TIME`]
//! to send the answer. For an answer in parts, the latter limit applies to each part, and the handler limits their
//! number. While other clients wait, the time limits are shorter.
//!
//! | module | what it is |
//! |---|---|
//! | [`head`] | a request's head: method, path, fields |
//! | [`answer`] | status, type and body |
//! | [`hosts`] | the server's names and addresses; requests to other hosts are refused |
//! | [`handler`] | the trait of what answers requests |
//! | [`connection`] | serving of one connection, with time limits |
//! | [`listener`] | where to listen: UNIX sockets, TCP ports, sockets of a service manager |
//! | [`visitors`] | the limit of connections, and which connection is ended when it is reached |
//! | [`server`] | the loop that accepts connections, with a thread for each |

pub mod answer;
pub mod connection;
pub mod handler;
pub mod head;
pub mod hosts;
pub mod listener;
pub mod server;
pub mod visitors;
