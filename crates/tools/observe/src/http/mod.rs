//! A small HTTP/1.1 server. Each connection carries one request without a body, and one answer, which is in memory as a
//! whole or is generated in parts.
//!
//! The cost of clients is limited: at most [`head::MAX_HEAD`] bytes for each request, [`visitors::MAX_CONNECTIONS`]
//! threads and, even if a client is slow, [`connection::REQUEST_TIME`] to receive its request and
//! [`connection::ANSWER_TIME`] to send the answer. For an answer in parts, the limit for the answer applies to each
//! part, and the handler limits the number of parts. While other clients wait, the time limits are shorter.
//!
//! | module | what it is |
//! |---|---|
//! | [`head`] | a request's head: method, path, fields |
//! | [`answer`] | status, type and body |
//! | [`hosts`] | the server's names and addresses; requests to other hosts are refused |
//! | [`handler`] | the trait of the code that answers requests |
//! | [`connection`] | serving of one connection, with time limits |
//! | [`listener`] | where to listen: UNIX sockets, TCP ports, sockets of a service manager |
//! | [`visitors`] | the limit of connections, and which connection ends when the limit is reached |
//! | [`server`] | the loop that accepts connections, with a thread for each |

pub mod answer;
pub mod connection;
pub mod handler;
pub mod head;
pub mod hosts;
pub mod listener;
pub mod server;
pub mod visitors;
