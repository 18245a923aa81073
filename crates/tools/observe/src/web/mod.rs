//! A page for the browser: switches, ports, rates, drops, workers and rings, live, and captures to download.
//!
//! Without the [`token`] a browser gets the page's own files, which are the same for every user. All figures take the
//! token; and for any request the [`guard`] demands that it is sent to this server and by its own page. Nothing here
//! changes the daemon: counters and ports are requested over one connection each, for any number of browsers, and a
//! capture is a monitor as opened by `netvale dump`.
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | the secret that a browser presents |
//! | [`guard`] | which requests are answered at all |
//! | [`assets`] | the page's files, compiled in |
//! | [`ports`] | the daemon's ports, and the details of one, briefly cached |
//! | [`capture`] | captures: parameters, limits, number at a time |
//! | [`page`] | the handler: the answer for each path |

pub mod assets;
pub mod capture;
pub mod guard;
pub mod page;
pub mod ports;
pub mod token;
