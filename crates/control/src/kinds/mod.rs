//! Data specific to one kind of port: details, counters, and requests. Each kind with such data has a file here and
//! rows in [`PortDetail`], [`KindStats`] and [`KindRequest`].

mod e1000;
mod ptnet;
mod vde;
mod vhost;
mod vxlan;

pub use e1000::*;
pub use ptnet::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use vde::*;
pub use vhost::*;
pub use vxlan::*;

use crate::error::RpcError;
use crate::params::params_of;

/// Data of one kind of port, as a variant of the enum `All` over all kinds.
pub trait Detail<All>: Sized {
    /// Returns the data of this kind; `None` if `all` contains the data of another kind.
    fn of(all: &All) -> Option<&Self>;
}

/// Defines an enum over kinds of ports from a row for each kind: its variant, its data, and its name in the protocol.
macro_rules! of_kinds {
    ($(#[doc = $what:literal])+ $all:ident $( $(#[doc = $doc:literal])+ $kind:ident($own:ident) $word:literal )+) => {
        $(#[doc = $what])+
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $all {
            $( $(#[doc = $doc])+ #[serde(rename = $word)] $kind($own), )+
        }

        $(
            impl Detail<$all> for $own {
                #[allow(unreachable_patterns, reason = "there may be one kind only")]
                fn of(all: &$all) -> Option<&Self> {
                    match all {
                        $all::$kind(own) => Some(own),
                        _ => None,
                    }
                }
            }

            impl From<$own> for $all {
                fn from(own: $own) -> $all {
                    $all::$kind(own)
                }
            }
        )+
    };
}

of_kinds! {
    /// Details of a port that are specific to its kind.
    PortDetail
    /// A vhost-user device, with the data for attaching a virtual machine.
    Vhost(VhostInfo) "vhost"
    /// A ptnet device, with the data for attaching a virtual machine.
    Ptnet(PtnetInfo) "ptnet"
    /// An e1000, with the data for attaching a virtual machine.
    E1000(E1000Info) "e1000"
    /// The endpoints of a VXLAN tunnel.
    Vxlan(VxlanInfo) "vxlan"
    /// The plug (VDE's client) at a port of a VDE switch.
    Vde(VdeInfo) "vde"
}

of_kinds! {
    /// Counters of a port that are specific to its kind.
    KindStats
    /// Counters of a VXLAN tunnel's endpoints.
    Vxlan(TunnelStats) "tunnel"
}

impl KindStats {
    /// Approximate number of counters.
    #[must_use]
    pub fn counters(&self) -> usize {
        match self {
            KindStats::Vxlan(tunnel) => 4 * tunnel.remotes.len(),
        }
    }
}

/// Defines the requests that only one kind of port takes, from a row for each request: its variant, parameters and
/// method.
macro_rules! requests {
    ($( $(#[doc = $doc:literal])+ $request:ident($params:ident) $method:literal )+) => {
        /// A request to ports of one kind. Serializes to the `method` and `params` members.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "method", content = "params")]
        pub enum KindRequest {
            $( $(#[doc = $doc])+ #[serde(rename = $method)] $request(Box<$params>), )+
        }

        impl KindRequest {
            /// Names of the methods of these requests.
            pub const METHODS: &[&str] = &[$($method),+];

            /// Parses a method and its parameters; `None` if no kind of port has the method.
            pub(crate) fn parse(method: &str, params: Option<Value>) -> Option<Result<KindRequest, RpcError>> {
                match method {
                    $( $method => Some(params_of(method, params).map(KindRequest::$request)), )+
                    _ => None,
                }
            }

            /// The full name of the port.
            #[must_use]
            pub fn port(&self) -> &str {
                match self { $( KindRequest::$request(params) => &params.port, )+ }
            }

            /// The full name of the port, as a mutable reference.
            pub fn port_mut(&mut self) -> &mut String {
                match self { $( KindRequest::$request(params) => &mut params.port, )+ }
            }
        }

        $(
            impl From<$params> for KindRequest {
                fn from(params: $params) -> KindRequest {
                    KindRequest::$request(Box::new(params))
                }
            }
        )+
    };
}

requests! {
    /// Sets the addresses behind a tunnel's remote endpoints. Answer: [`Reply::Done`](crate::Reply::Done).
    VxlanSet(VxlanSetParams) "vxlan.set"
    /// Reads the addresses on this host's side of a tunnel. Answer: [`KindReply::VxlanLocal`].
    VxlanLocal(VxlanLocalParams) "vxlan.local"
    /// Changes the ports of a VDE switch, also before plugs (VDE's clients) connect to them. Answer:
    /// [`Reply::Done`](crate::Reply::Done).
    VdeSet(VdeSetParams) "vde.set"
}

/// The answer to a request to ports of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum KindReply {
    /// The answer to `vxlan.local`.
    VxlanLocal(VxlanLocal),
}

impl PortDetail {
    /// Removes the parts that only `port.show` returns.
    pub fn shorten(&mut self) {
        if let PortDetail::Vxlan(tunnel) = self {
            tunnel.remotes.clear();
        }
    }
}
