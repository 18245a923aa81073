//! netmap's persistent VALE ports (`NETMAP_REQ_VALE_NEWIF`): ports with an interface's name, which stay, on a switch or not.
//!
//! Such a port has one set of rings from the beginning, which all who open it share, by its own name or by the one it has on a switch. While it is on
//! none, its forwarders belong to a switch without ports, where what is sent goes nowhere.

use std::mem::offset_of;
use std::sync::Arc;

use netvale_abi::nmreq::{NmreqRegister, NmreqValeAttach, NmreqValeDetach, NmreqValeNewif};
use netvale_afxdp::iface::Interface;
use netvale_control::attach::{AttachRequest, FLAG_NETMAP};
use netvale_mem::mapping::Pages;
use netvale_mem::{PortShape, Region};
use netvale_port::{Egress, HdrLen, Ingress};
use netvale_portspec::{Base, Conf, PortName, PortSpec};
use netvale_switch::{Forwarder, Port, PortId, Switch};
use rustix::io::Errno;

use crate::holders::Holders;
use crate::monitors::Watched;
use crate::netmap::{Body, vale_name};
use crate::open::{Opened, refuse};
use crate::refusal::Refusal;
use crate::rings::Rings;
use crate::sizes::Sizes;
use crate::state::{Caller, Kind, LocalPort, PortRecord, State};

/// A persistent port.
pub struct NewIf {
    uid: u32,
    /// Where its record is: under its own name, or under the one it has on its switch.
    place: String,
    /// What it is on while it is on no switch.
    nowhere: Arc<Switch>,
    /// Its port on a second switch.
    joint: Option<String>,
}

impl NewIf {
    /// Where its record is.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

/// Most persistent ports.
const MOST: usize = 254;
/// Bytes of an interface's name, the NUL included.
const IFNAMSIZ: usize = 16;

/// The name under which an attachment knows a persistent port, wherever it is.
fn own_name(port: &str) -> String {
    format!("netmap:{port}")
}

impl State {
    /// Where the record of a port is: a persistent port's moves when it comes to a switch.
    pub(crate) fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let newif = name.strip_prefix("netmap:").and_then(|port| self.newifs.get(port));
        newif.map_or(name, |newif| &newif.place)
    }

    /// Where the record of a persistent port is, by its bare name.
    pub(crate) fn own_place(&self, port: &str) -> Option<String> {
        self.newifs.get(port).map(|newif| newif.place.clone())
    }

    /// What an attachment calls the port that is at `full`.
    pub(crate) fn lasting_name(&self, full: &str) -> String {
        self.newif_at(full).map_or_else(|| full.to_owned(), |port| own_name(&port))
    }

    /// The persistent port that is at `full`.
    fn newif_at(&self, full: &str) -> Option<String> {
        self.newifs.iter().find(|(_, newif)| newif.place == full).map(|(port, _)| port.clone())
    }

    /// A switch's port cannot have the name of a persistent port that is not attached there.
    pub(crate) fn check_name_free(&self, port: &str) -> Result<(), Refusal> {
        if self.newifs.contains_key(port) {
            return refuse(Errno::INVAL, format!("{port} is a persistent port: attach it to the switch first"));
        }
        Ok(())
    }

    pub(crate) fn newif(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        match PortName::parse(name) {
            Ok(parsed) if parsed.pipe().is_none() && matches!(parsed.base(), Base::Netmap { .. }) => {}
            _ => return refuse(Errno::INVAL, format!("{name}: a persistent port has an interface's name")),
        }
        if name.len() >= IFNAMSIZ || name.contains(':') {
            return refuse(Errno::INVAL, format!("{name}: an interface's name has at most {} letters", IFNAMSIZ - 1));
        }
        if self.newifs.contains_key(name) || Interface::find(name).is_ok() {
            return refuse(Errno::EXIST, format!("there is an interface {name} already"));
        }
        if self.newifs.len() >= MOST {
            return refuse(Errno::NOSPC, format!("there are {MOST} persistent ports, the most there can be"));
        }
        let request = AttachRequest {
            flags: FLAG_NETMAP,
            tx_slots: body.u32(offset_of!(NmreqValeNewif, nr_tx_slots)),
            rx_slots: body.u32(offset_of!(NmreqValeNewif, nr_rx_slots)),
            tx_rings: body.u16(offset_of!(NmreqValeNewif, nr_tx_rings)).into(),
            rx_rings: body.u16(offset_of!(NmreqValeNewif, nr_rx_rings)).into(),
            ..AttachRequest::default()
        };
        let sizes = Sizes::new(&request, &Conf::default())?;
        let (region, mem_id) = match body.u16(offset_of!(NmreqValeNewif, nr_mem_id)).into() {
            0 => self.new_region(sizes.region(), Pages::Ordinary, caller.uid)?,
            id => (self.region(id, caller.uid)?, id),
        };
        let nowhere = Switch::with_table_size("", 8);
        let record = self.unattached((&region, mem_id), sizes.shape, HdrLen::default(), &nowhere, caller)?;
        self.ports.insert(own_name(name), record);
        self.newifs.insert(name.to_owned(), NewIf { uid: caller.uid, place: own_name(name), nowhere, joint: None });
        body.put32(offset_of!(NmreqValeNewif, nr_tx_slots), sizes.shape.tx_slots);
        body.put32(offset_of!(NmreqValeNewif, nr_rx_slots), sizes.shape.rx_slots);
        body.put16(offset_of!(NmreqValeNewif, nr_tx_rings), sizes.shape.tx_rings);
        body.put16(offset_of!(NmreqValeNewif, nr_rx_rings), sizes.shape.rx_rings);
        body.put16(offset_of!(NmreqValeNewif, nr_mem_id), mem_id);
        Ok(())
    }

    /// Fresh rings, with forwarders that send nowhere.
    fn unattached(
        &mut self,
        (region, mem_id): (&Arc<Region>, u32),
        shape: PortShape,
        hdr_len: HdrLen,
        nowhere: &Arc<Switch>,
        owner: Caller,
    ) -> Result<PortRecord, Refusal> {
        let (rings, ingresses) = Rings::new(region, mem_id, shape, hdr_len, self.new_fault())?;
        let ingress = ingresses.iter().map(|i| Arc::clone(i.counters())).collect();
        let egress = rings.rx.iter().map(|e| Arc::clone(e.counters())).collect();
        let forwarders = ingresses.into_iter().enumerate();
        let placed = forwarders
            .map(|(ring, i)| self.place(Box::new(Forwarder::new(Arc::clone(nowhere), 0, ring, Box::new(i)))))
            .collect();
        let held = |n: u32| vec![Holders::default(); n as usize];
        let local = LocalPort { rings, tx_held: held(shape.tx_rings), rx_held: held(shape.rx_rings) };
        Ok(PortRecord { placed, ingress, egress, ..PortRecord::new(Kind::Local(local), owner) })
    }

    fn own_newif(&self, name: &str, caller: Caller) -> Result<&NewIf, Refusal> {
        let newif = self.newifs.get(name).ok_or_else(|| {
            // Only what was made so can go so.
            let errno = if Interface::find(name).is_ok() { Errno::INVAL } else { Errno::NXIO };
            Refusal::new(errno, format!("there is no persistent port {name}"))
        })?;
        if caller.uid != 0 && caller.uid != newif.uid {
            return refuse(Errno::ACCESS, format!("{name} belongs to user {}", newif.uid));
        }
        Ok(newif)
    }

    /// Whether programs have it open.
    fn is_held(&self, place: &str) -> bool {
        self.ports.get(place).is_some_and(|record| matches!(&record.kind, Kind::Local(l) if !l.is_unheld()))
    }

    pub(crate) fn delif(&mut self, name: &str, caller: Caller) -> Result<(), Refusal> {
        let place = self.own_newif(name, caller)?.place.clone();
        self.check_not_joined(&place)?;
        if place != own_name(name) {
            return refuse(Errno::BUSY, format!("{name} is on a switch as {place}: detach it first"));
        }
        if self.is_held(&place) {
            return refuse(Errno::BUSY, format!("{name} is open"));
        }
        self.newifs.remove(name);
        self.unplug(&place, "asked for by a netmap program")
    }

    pub(crate) fn vale_attach(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        let (switch, port) = vale_name(name)?;
        if self.ports.contains_key(name) {
            return refuse(Errno::BUSY, format!("{name} is attached already"));
        }
        let mode = body.u32(offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_mode));
        let ring = body.u16(offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_ringid));
        if let Some(newif) = self.newifs.get(&port) {
            let at = offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_mem_id);
            let (place, mem_id) = (newif.place.clone(), body.u16(at).into());
            self.check_attachable(&port, &place, caller)?;
            if place == own_name(&port) {
                self.hook((&switch, &port), mem_id, caller)?;
            } else {
                if mem_id != 0 {
                    self.region(mem_id, caller.uid)?;
                }
                self.join((&switch, &port), (mode, ring), caller)?;
            }
            body.put16(at, self.region_of(&own_name(&port)).unwrap_or(mem_id));
        } else {
            let mem_id = body.u16(offset_of!(NmreqValeAttach, reg) + offset_of!(NmreqRegister, nr_mem_id));
            if mem_id != 0 {
                self.region(mem_id.into(), caller.uid)?;
            }
            self.attach_nic_named((&switch, &port), (mode, ring), caller)?;
        }
        let index = self.ports.get(name).and_then(|record| record.id).unwrap_or_default();
        body.put32(offset_of!(NmreqValeAttach, port_index), index.into());
        Ok(())
    }

    pub(crate) fn vale_detach(&mut self, name: &str, body: &mut Body, caller: Caller) -> Result<(), Refusal> {
        vale_name(name)?;
        let record = self.own_port(name, caller)?;
        if record.wrapped().is_some() && record.polled {
            return refuse(Errno::BUSY, format!("{name} is polled: end that first"));
        }
        let index = record.id.unwrap_or_default();
        // A port that its program made stays as long as that has it: as in netmap, this changes nothing.
        let of_a_program = matches!(&record.kind, Kind::Local(l) if !record.persistent && !l.is_unheld());
        if !of_a_program {
            self.detach(name, "asked for by a netmap program")?;
        }
        body.put32(offset_of!(NmreqValeDetach, port_index), index.into());
        Ok(())
    }

    /// As in netmap, a port cannot be attached while it is open, or once it joins two switches.
    fn check_attachable(&self, port: &str, place: &str, caller: Caller) -> Result<(), Refusal> {
        self.own_newif(port, caller)?;
        self.check_not_joined(place)?;
        if self.is_held(place) {
            return refuse(Errno::BUSY, format!("{port} is open: attach it when its programs have closed it"));
        }
        Ok(())
    }

    /// A port that joins two switches is nobody else's.
    pub(crate) fn check_not_joined(&self, place: &str) -> Result<(), Refusal> {
        match self.joint_of(place) {
            Some(joint) => {
                refuse(Errno::BUSY, format!("{place} is joined to another switch, as {joint}: detach it there"))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn joint_of(&self, place: &str) -> Option<&str> {
        self.newifs.values().find(|newif| newif.place == place)?.joint.as_deref()
    }

    /// Whether the port that is at `place` joins two switches: it is in use then, though no program has it.
    pub(crate) fn is_joined(&self, place: &str) -> bool {
        self.joint_of(place).is_some()
    }

    pub(crate) fn set_joint(&mut self, port: &str, joint: Option<String>) {
        if let Some(newif) = self.newifs.get_mut(port) {
            newif.joint = joint;
        }
    }

    /// Brings a persistent port to its first switch, with the rings it has.
    fn hook(&mut self, (switch_name, port): (&str, &str), mem_id: u32, caller: Caller) -> Result<(), Refusal> {
        self.move_to_region(port, mem_id, caller)?;
        let place = own_name(port);
        let switch = self.switch(switch_name)?;
        let rings = self.ports.get(&place).and_then(PortRecord::rings);
        let egresses = rings.into_iter().flat_map(|r| &r.rx).map(|e| Arc::clone(e) as Arc<dyn Egress>).collect();
        let id = switch.attach(Port { name: port.to_owned(), egresses, lossless: false })?;
        self.rehome(&place, &switch, Some(id));
        let full = format!("{switch_name}:{port}");
        self.rename(port, &full);
        tracing::info!(port = full, uid = caller.uid, pid = caller.pid, "attached");
        Ok(())
    }

    /// Takes a persistent port off its switch: who has it open keeps it. Returns whether `full` is one.
    pub(crate) fn unhook(&mut self, full: &str, why: &str) -> bool {
        if self.part(full, why) {
            return true;
        }
        let Some(port) = self.newif_at(full).filter(|port| own_name(port) != full) else { return false };
        let Some((switch, id)) = self.ports.get(full).and_then(|r| Some((r.switch.clone()?, r.id?))) else {
            return false;
        };
        let Some(nowhere) = self.newifs.get(&port).map(|newif| Arc::clone(&newif.nowhere)) else { return false };
        // What was sent before is forwarded first; then, before its number is free for another port, nobody forwards in its name any more.
        self.drain(full);
        self.rehome(full, &nowhere, None);
        self.drain(full);
        switch.detach(id);
        self.end_monitors(&Watched::Port(full.to_owned()));
        self.drop_if_empty(&switch);
        self.rename(&port, &own_name(&port));
        tracing::info!(port = full, why, "detached");
        true
    }

    /// Its forwarders send from port `id` of `switch` now.
    fn rehome(&mut self, place: &str, switch: &Arc<Switch>, id: Option<PortId>) {
        let Some(record) = self.ports.get_mut(place) else { return };
        (record.switch, record.id) = (id.is_some().then(|| Arc::clone(switch)), id);
        for placed in &record.placed {
            if let Some(w) = self.workers.get(placed.worker) {
                w.rehome(placed.id, Arc::clone(switch), id.unwrap_or_default());
            }
        }
    }

    fn rename(&mut self, port: &str, to: &str) {
        let Some(newif) = self.newifs.get_mut(port) else { return };
        let from = std::mem::replace(&mut newif.place, to.to_owned());
        if let Some(record) = self.ports.remove(&from) {
            self.ports.insert(to.to_owned(), record);
        }
    }

    /// As in netmap, a port that nobody has open comes to lie in the region that is asked for.
    fn move_to_region(&mut self, port: &str, mem_id: u32, caller: Caller) -> Result<(), Refusal> {
        if mem_id == 0 {
            return Ok(());
        }
        let region = self.region(mem_id, caller.uid)?;
        let Some(newif) = self.newifs.get(port) else { return Ok(()) };
        let (place, nowhere) = (newif.place.clone(), Arc::clone(&newif.nowhere));
        let Some(record) = self.ports.get(&place) else { return Ok(()) };
        let Some(rings) = record.rings().filter(|r| r.mem_id != mem_id) else { return Ok(()) };
        if record.switch.is_some() || self.is_held(&place) {
            return Ok(());
        }
        let (shape, hdr_len, owner) = (rings.mem.shape(), rings.hdr_len.clone(), record.owner);
        let new = self.unattached((&region, mem_id), shape, hdr_len, &nowhere, owner)?;
        if let Some(old) = self.ports.insert(place, new) {
            self.retire(&old.placed);
        }
        Ok(())
    }

    /// Opens a persistent port by its own name: its rings, on a switch or not.
    pub(crate) fn open_newif(
        &mut self,
        request: &AttachRequest,
        spec: &PortSpec,
        name: &str,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let place = self.own_newif(name, caller)?.place.clone();
        self.check_not_joined(&place)?;
        self.move_to_region(name, request.mem_id, caller)?;
        self.bind_local(&place, spec, request, caller, None)
    }
}
