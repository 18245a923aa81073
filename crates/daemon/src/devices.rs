//! Ports that are devices of their own: TAPs and capture files.

use netvale_control::types::{AttachParams, PortKind, PortOptions};
use netvale_portspec::PcapFiles;
use rustix::io::Errno;

use crate::StartError;
use crate::refusal::Refusal;
use crate::state::{Caller, State};

/// A device behind a port.
pub struct Device {
    /// TAP or capture files.
    pub kind: PortKind,
    /// Name of the interface or files, for `netvale show`.
    pub detail: String,
}

impl State {
    /// Attaches the ports of the configuration.
    ///
    /// # Errors
    /// The first that cannot be attached.
    pub fn attach_configured(&mut self) -> Result<(), StartError> {
        let caller = Caller {
            client: 0,
            uid: rustix::process::getuid().as_raw(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
        };
        for c in self.config.ports.clone() {
            let options = PortOptions {
                rings: c.rings.unwrap_or(0),
                slots: c.slots.unwrap_or(0),
                lossless: c.lossless,
                vnet_hdr: c.vnet_hdr,
                mtu: c.mtu,
                ..PortOptions::default()
            };
            let params = AttachParams { switch: c.switch, port: c.port.clone(), options };
            self.attach(&params, caller).map_err(|refusal| StartError::Port { port: c.port, refusal })?;
        }
        Ok(())
    }

    pub(crate) fn attach_tap(
        &mut self,
        _at: (&str, &str),
        _name: &str,
        _o: &PortOptions,
        _c: Caller,
    ) -> Result<(), Refusal> {
        Err(Refusal::new(Errno::OPNOTSUPP, "no TAP yet"))
    }

    pub(crate) fn attach_pcap(
        &mut self,
        _at: (&str, &str),
        _f: &PcapFiles,
        _o: &PortOptions,
        _c: Caller,
    ) -> Result<(), Refusal> {
        Err(Refusal::new(Errno::OPNOTSUPP, "no pcap yet"))
    }
}
