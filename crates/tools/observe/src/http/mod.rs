//! A small HTTP/1.1 server. Each connection carries one request without a body, and one answer: whole in memory, or in
//! parts with one part in memory.
//!
//! The cost of a client is bounded: [`head::MAX_HEAD`] bytes of a request, [`visitors::MAX_CONNECTIONS`] threads,
//! [`connection::REQUEST_TIME`] for a request to arrive and [`connection::ANSWER_TIME`] for the client to take an
//! answer, however slowly it sends and reads. In an answer in parts each part has that time, and the handler ends the
//! answer. While other clients wait, the limits are shorter.
//!
//! | module | what it is |
//! |---|---|
//! | [`head`] | a request's head: method, path, fields |
//! | [`answer`] | status, type and body |
//! | [`hosts`] | the server's names and addresses: requests to others are refused |
//! | [`handler`] | turns requests into answers |
//! | [`connection`] | one connection under time limits |
//! | [`listener`] | where to listen: UNIX sockets, TCP ports, sockets of a service manager |
//! | [`visitors`] | the limit of connections, and which one makes room |
//! | [`server`] | the loop that accepts connections, each in a thread |

pub mod answer;
pub mod connection;
pub mod handler;
pub mod head;
pub mod hosts;
pub mod listener;
pub mod server;
pub mod visitors;
