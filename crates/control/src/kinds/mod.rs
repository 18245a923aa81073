//! What there is of one kind of port alone: what is shown of it, and requests of its own. A kind that has some has a
//! file here, and a row of [`PortDetail`].

mod e1000;
mod ptnet;
mod vhost;
mod vxlan;

pub use e1000::*;
pub use ptnet::*;
use serde::{Deserialize, Serialize};
pub use vhost::*;
pub use vxlan::*;

/// What is shown of a port of one kind alone.
pub trait Detail: Sized {
    /// This kind's, if it is of this kind.
    fn of(detail: &PortDetail) -> Option<&Self>;
}

/// Makes [`PortDetail`] of a row for each kind that has one.
macro_rules! details {
    ($( $(#[doc = $doc:literal])+ $kind:ident($info:ident) )+) => {
        /// What is shown of a port of one kind alone.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum PortDetail {
            $( $(#[doc = $doc])+ $kind($info), )+
        }

        $(
            impl Detail for $info {
                fn of(detail: &PortDetail) -> Option<&Self> {
                    match detail {
                        PortDetail::$kind(info) => Some(info),
                        _ => None,
                    }
                }
            }

            impl From<$info> for PortDetail {
                fn from(info: $info) -> PortDetail {
                    PortDetail::$kind(info)
                }
            }
        )+
    };
}

details! {
    /// A vhost-user device: how to attach a virtual machine to it.
    Vhost(VhostInfo)
    /// A ptnet device: how to attach a virtual machine to it.
    Ptnet(PtnetInfo)
    /// An e1000: how to attach a virtual machine to it.
    E1000(E1000Info)
    /// A VXLAN tunnel: its endpoints.
    Vxlan(VxlanInfo)
}

impl PortDetail {
    /// Without what lists leave out.
    pub fn shorten(&mut self) {
        if let PortDetail::Vxlan(tunnel) = self {
            tunnel.remotes.clear();
        }
    }
}
