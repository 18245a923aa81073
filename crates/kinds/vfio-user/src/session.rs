//! Executes a client's messages: a state machine around a [`Device`], without a socket.

use std::os::fd::OwnedFd;

use netvale_mem::fault::Fault;
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::dma::{Dma, MAX_WINDOWS, WindowPlace};
pub use crate::ended::ClientViolation;
use crate::inbox::SocketInbox;
use crate::irqs::{INTX, IrqEffect, IrqRequest, Irqs, KINDS};
use crate::wire::{MAX_DATA, MAX_FDS, VfioMessage, WireReader, WireWriter, command};
use crate::{BARS, Bar, Device, DeviceHost};

/// Number of regions of a PCI device: the base address registers, the ROM, configuration space, VGA.
const REGIONS: u32 = 9;
/// Region number of configuration space.
const CONFIG: u32 = 7;

/// An answer: its bytes, and the descriptors sent with them.
#[derive(Debug, Default)]
pub struct VfioAnswer {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptors sent with the bytes.
    pub fds: Vec<OwnedFd>,
}

/// Payload and descriptors of an answer, or the failure.
type VfioOutcome = Result<(Vec<u8>, Vec<OwnedFd>), VfioFailure>;

enum VfioFailure {
    /// An error number to return to the client.
    Errno(Errno),
    /// A protocol violation, which ends the connection.
    Refused(ClientViolation),
}

impl From<Errno> for VfioFailure {
    fn from(e: Errno) -> Self {
        VfioFailure::Errno(e)
    }
}

/// One client's session with a device.
pub struct DeviceSession<D> {
    pub(crate) device: D,
    pub(crate) host: DeviceHost,
    pub(crate) greeted: bool,
    /// Received bytes that are not handled yet.
    pub(crate) inbox: SocketInbox,
    /// An answer that is not completely sent, and the number of its bytes that are sent.
    pub(crate) unsent: Option<(VfioAnswer, usize)>,
}

impl<D: Device> DeviceSession<D> {
    /// Creates a session for a device with `vectors[kind]` vectors of each interrupt kind. `fault`, which belongs to
    /// the client's connection, is set if the client's memory is lost or one of its doorbells blocks.
    pub fn new(device: D, vectors: [u32; KINDS], fault: &Fault) -> DeviceSession<D> {
        let host = DeviceHost { dma: Dma::new(fault), irqs: Irqs::new(vectors, fault) };
        DeviceSession { device, host, greeted: false, inbox: SocketInbox::default(), unsent: None }
    }

    /// Returns the device and the hypervisor's resources.
    pub fn device(&mut self) -> (&mut D, &DeviceHost) {
        (&mut self.device, &self.host)
    }

    /// Executes a message. Returns the answer; `None` if the client requested no answer.
    ///
    /// # Errors
    /// [`ClientViolation`] if the message violates the protocol.
    pub fn handle(&mut self, message: VfioMessage) -> Result<Option<VfioAnswer>, ClientViolation> {
        let header = message.header;
        if !header.is_command() {
            return Err(ClientViolation::Reply(header.command));
        }
        if !self.greeted && header.command != command::VERSION {
            return Err(ClientViolation::NotAVersion(header.command));
        }
        let answer = match self.obey(header.command, &message.payload, message.fds) {
            Ok((payload, fds)) => VfioAnswer { bytes: header.reply(&payload), fds },
            Err(VfioFailure::Errno(e)) => {
                tracing::debug!(command = header.command, "refused: {e}");
                VfioAnswer { bytes: header.failure(e.raw_os_error().unsigned_abs()), fds: Vec::new() }
            }
            Err(VfioFailure::Refused(why)) => return Err(why),
        };
        Ok(header.wants_reply().then_some(answer))
    }

    fn obey(&mut self, what: u16, payload: &[u8], fds: Vec<OwnedFd>) -> VfioOutcome {
        let body = PayloadReader { what, r: WireReader(payload) };
        match what {
            command::VERSION => self.version(body),
            command::DMA_MAP => self.dma_map(body, &fds),
            command::DMA_UNMAP => self.dma_unmap(body, payload),
            command::DEVICE_GET_INFO => {
                let mut w = WireWriter::default();
                w.u32(16).u32(0b11).u32(REGIONS).u32(KINDS as u32);
                Ok((w.0, Vec::new()))
            }
            command::DEVICE_GET_REGION_INFO => self.region_info(body),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(body),
            command::DEVICE_SET_IRQS => self.set_irqs(body, fds),
            command::REGION_READ => self.region_read(body),
            command::REGION_WRITE => self.region_write(body),
            command::DEVICE_RESET => {
                self.device.config().reset();
                self.device.reset(&self.host);
                Ok(Default::default())
            }
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }

    fn version(&mut self, mut b: PayloadReader<'_>) -> VfioOutcome {
        let major = b.u16()?;
        let minor = b.u16()?;
        if major != 0 {
            return Err(VfioFailure::Refused(ClientViolation::Version(major)));
        }
        let text = b.r.rest();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let theirs = match serde_json::from_slice::<Value>(text) {
            Ok(value) => value,
            Err(_) if text.is_empty() => Value::Null,
            Err(_) => return Err(Errno::INVAL.into()),
        };
        self.greeted = true;
        // QEMU refuses limits that are higher than the limits that it proposed.
        let least = |what: &str, ours: usize| {
            let asked = theirs["capabilities"][what].as_u64().and_then(|n| usize::try_from(n).ok());
            asked.map_or(ours, |asked| asked.min(ours))
        };
        let capabilities = json!({ "capabilities": {
            "max_msg_fds": least("max_msg_fds", MAX_FDS),
            "max_data_xfer_size": least("max_data_xfer_size", MAX_DATA),
            "max_dma_maps": least("max_dma_maps", MAX_WINDOWS),
        } });
        let mut w = WireWriter::default();
        w.u16(0).u16(minor.min(1));
        w.0.extend_from_slice(capabilities.to_string().as_bytes());
        w.0.push(0);
        Ok((w.0, Vec::new()))
    }

    fn dma_map(&mut self, mut b: PayloadReader<'_>, fds: &[OwnedFd]) -> VfioOutcome {
        let _argsz = b.u32()?;
        let flags = b.u32()?;
        let place = WindowPlace { flags, offset: b.u64()?, address: b.u64()?, size: b.u64()? };
        self.host.dma.map(place, fds.first())?;
        self.device.memory_changed(&self.host);
        Ok(Default::default())
    }

    fn dma_unmap(&mut self, mut b: PayloadReader<'_>, payload: &[u8]) -> VfioOutcome {
        let _argsz = b.u32()?;
        let flags = b.u32()?;
        let address = b.u64()?;
        let size = b.u64()?;
        // `VFIO_DMA_UNMAP_FLAG_ALL` of linux/vfio.h; the vfio-user specification defines no flags.
        if flags & 0b10 != 0 {
            self.host.dma.clear();
        } else {
            self.host.dma.unmap(address, size)?;
        }
        self.device.memory_changed(&self.host);
        Ok((payload.get(..24).unwrap_or_default().to_vec(), Vec::new()))
    }

    fn region_info(&mut self, mut b: PayloadReader<'_>) -> VfioOutcome {
        let argsz = b.u32()?;
        let _flags = b.u32()?;
        let index = b.u32()?;
        if index >= REGIONS {
            return Err(Errno::INVAL.into());
        }
        let Bar { size, memory } = self.region(index);
        let access = if size > 0 { 0b11 } else { 0 };
        let mut w = WireWriter::default();
        let Some((fd, offset)) = memory else {
            w.u32(32).u32(access).u32(index).u32(0).u64(size).u64(0);
            return Ok((w.0, Vec::new()));
        };
        // QEMU maps only the areas of a sparse-mmap capability, so the reply has one, at offset 32, with one area that
        // covers the whole region. The flags are read, write, mmap, capabilities.
        w.u32(64).u32(access | 0b1100).u32(index).u32(32).u64(size).u64(offset);
        w.u16(1).u16(1).u32(0).u32(1).u32(0).u64(0).u64(size);
        if argsz < 64 {
            // The client must repeat the request with a larger `argsz` to get the capability and the descriptor.
            w.0.truncate(32);
            return Ok((w.0, Vec::new()));
        }
        Ok((w.0, vec![fd.try_clone_to_owned().map_err(|_| Errno::MFILE)?]))
    }

    fn irq_info(&mut self, mut b: PayloadReader<'_>) -> VfioOutcome {
        let _argsz = b.u32()?;
        let _flags = b.u32()?;
        let index = b.u32()?;
        let kind = index as usize;
        if kind >= KINDS {
            return Err(Errno::INVAL.into());
        }
        // INTx: eventfd, maskable, masked automatically when triggered. Other kinds: eventfd, number of vectors fixed.
        let flags = if kind == INTX { 0b0111 } else { 0b1001 };
        let mut w = WireWriter::default();
        w.u32(16).u32(flags).u32(index).u32(self.host.irqs.count(kind));
        Ok((w.0, Vec::new()))
    }

    fn set_irqs(&mut self, mut b: PayloadReader<'_>, fds: Vec<OwnedFd>) -> VfioOutcome {
        let _argsz = b.u32()?;
        let flags = b.u32()?;
        let set = IrqRequest { flags, index: b.u32()?, start: b.u32()?, count: b.u32()? };
        match self.host.irqs.set(set, b.r.rest(), fds)? {
            IrqEffect::Bells => self.device.interrupts_changed(&self.host),
            IrqEffect::Pin => self.device.pin_changed(&self.host),
            IrqEffect::Nothing => {}
        }
        Ok(Default::default())
    }

    /// Returns the address range of a region; its size is 0 if the device lacks the region.
    fn region(&self, index: u32) -> Bar<'_> {
        match index {
            CONFIG => Bar { size: crate::config::SIZE as u64, memory: None },
            i if (i as usize) < BARS => self.device.bar(i as usize),
            _ => Bar::default(),
        }
    }

    /// Parses a message that accesses a region, and checks that the region contains the accessed bytes. Returns the
    /// offset, the region and the length.
    fn access(&mut self, b: &mut PayloadReader<'_>) -> Result<(u64, u32, usize), VfioFailure> {
        let offset = b.u64()?;
        let region = b.u32()?;
        let count = b.u32()? as usize;
        let inside = offset.checked_add(count as u64).is_some_and(|end| end <= self.region(region).size);
        if !inside || count > MAX_DATA {
            return Err(Errno::INVAL.into());
        }
        Ok((offset, region, count))
    }

    fn region_read(&mut self, mut b: PayloadReader<'_>) -> VfioOutcome {
        let (offset, region, count) = self.access(&mut b)?;
        let mut data = vec![0; count];
        if region == CONFIG {
            self.device.config().read(offset, &mut data);
        } else {
            self.device.read(region as usize, offset, &mut data, &self.host);
        }
        let mut w = WireWriter::default();
        w.u64(offset).u32(region).u32(count as u32);
        w.0.extend_from_slice(&data);
        Ok((w.0, Vec::new()))
    }

    fn region_write(&mut self, mut b: PayloadReader<'_>) -> VfioOutcome {
        let (offset, region, count) = self.access(&mut b)?;
        let what = b.what;
        let data = b.r.rest().get(..count).ok_or(VfioFailure::Refused(ClientViolation::Short(what)))?;
        if region == CONFIG {
            self.device.config().write(offset, data);
        } else {
            self.device.write(region as usize, offset, data, &self.host);
        }
        let mut w = WireWriter::default();
        w.u64(offset).u32(region).u32(count as u32);
        Ok((w.0, Vec::new()))
    }
}

/// Reads a payload from the front; a payload that ends too early violates the protocol.
struct PayloadReader<'a> {
    what: u16,
    r: WireReader<'a>,
}

impl PayloadReader<'_> {
    fn u16(&mut self) -> Result<u16, VfioFailure> {
        self.r.u16().ok_or(VfioFailure::Refused(ClientViolation::Short(self.what)))
    }

    fn u32(&mut self) -> Result<u32, VfioFailure> {
        self.r.u32().ok_or(VfioFailure::Refused(ClientViolation::Short(self.what)))
    }

    fn u64(&mut self) -> Result<u64, VfioFailure> {
        self.r.u64().ok_or(VfioFailure::Refused(ClientViolation::Short(self.what)))
    }
}
