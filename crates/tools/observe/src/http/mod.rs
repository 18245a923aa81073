//! A small HTTP/1.1 server: each connection has one request without a body, and one answer: whole in memory, or in
//! parts, of which one is.
//!
//! What a client can cost is bounded: [`head::MAX_HEAD`] bytes of a request, [`visitors::MAX_CONNECTIONS`] threads,
//! [`connection::REQUEST_TIME`] for a request to arrive and [`connection::ANSWER_TIME`] for an answer to be taken,
//! however slowly bytes come and go. Of an answer in parts, each part has that time, and the handler that makes them
//! ends it. While others wait, clients have less time than that.
//!
//! | module | what it is |
//! |---|---|
//! | [`head`] | a request's head: method, path, fields |
//! | [`answer`] | status, type and body |
//! | [`hosts`] | names and addresses under which it is asked: requests to others are refused |
//! | [`handler`] | what makes answers out of requests |
//! | [`connection`] | one connection under time limits |
//! | [`listener`] | where to listen: UNIX sockets, TCP ports, sockets of a service manager |
//! | [`visitors`] | how many connections there may be, and who makes room |
//! | [`server`] | the loop that accepts connections, each in a thread |

pub mod answer;
pub mod connection;
pub mod handler;
pub mod head;
pub mod hosts;
pub mod listener;
pub mod server;
pub mod visitors;
