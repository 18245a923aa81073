//! A page for browsers, which shows switches, ports, rates, drops, workers and rings live, and offers captures for
//! download.
//!
//! Without the [`token`], a browser gets only the page's files, which are the same for every user. Requests for figures
//! need the token, and the [`guard`] checks that each request comes from this server's own page. Nothing here changes
//! the daemon's state: counters and ports are each read over one connection, for any number of browsers, and a capture
//! is a monitor port as in `netvale dump`.
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | the secret that a browser must send |
//! | [`guard`] | decides which requests are answered |
//! | [`assets`] | the page's files, which are compiled in |
//! | [`ports`] | the daemon's ports, and the details of single ports, cached for a short time |
//! | [`flows`] | the gateways' open flows, cached for a short time |
//! | [`capture`] | captures: parameters, limits, maximum number |
//! | [`page`] | the handler, which returns the answer for each URL path |

pub mod assets;
pub mod capture;
pub mod flows;
pub mod guard;
pub mod page;
pub mod ports;
pub mod token;
