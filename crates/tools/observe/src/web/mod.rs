//! A page to look at: switches, ports, rates, drops, workers and rings, live in a browser, and captures to download.
//!
//! What a browser gets without the [`token`] is the page itself, which is the same for everybody. All figures take the
//! token; and whatever is asked, the [`guard`] wants it to be asked of this server and by its own page. Nothing here
//! changes the daemon: it is asked for counters and ports, by one connection each however many browsers look, and a
//! capture is a monitor as `netvale dump` opens it.
//!
//! | module | what it is |
//! |---|---|
//! | [`token`] | the secret that a browser shows |
//! | [`guard`] | which requests are answered at all |
//! | [`assets`] | the page's files, compiled in |
//! | [`ports`] | what the daemon says of its ports and of one of them, kept for a moment |
//! | [`capture`] | captures: what may be asked for, how many there are, when they end |
//! | [`page`] | the handler: which answer is at which path |

pub mod assets;
pub mod capture;
pub mod guard;
pub mod page;
pub mod ports;
pub mod token;
