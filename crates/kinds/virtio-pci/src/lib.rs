//! virtio on the PCI bus (virtio 1.3 §4.1): connects [`netvale_virtio`]'s driver to a device that vfio gives to this
//! process. The device may be hardware, or emulated if netvale runs in a guest.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
pub use netvale_pci::IOCTLS;
use netvale_pci::{MappedBar, PciError, PciFunction};
use netvale_virtio::driver::options::DriverOptions;
use netvale_virtio::driver::port::{LendError, PortSession, Transport};
use netvale_virtio::driver::ram::{DriverRam, QueueRam};
use netvale_virtio::driver::started::{Kick, RunningQueue, RunningVirtioDevice, pair_up};
use netvale_virtio::driver::{DriverFeatures, DriverQueue};
use netvale_virtio::features::{ACCESS_PLATFORM, CTRL_VQ, MQ, ORDER_PLATFORM, STATUS, VERSION_1};
use rustix::io::Errno;
use thiserror::Error;

/// virtio's PCI vendor ID.
const VENDOR: u16 = 0x1af4;
/// PCI device IDs of network devices: virtio 1.0 and later, and transitional devices (§4.1.2).
const DEVICES: [u16; 2] = [0x1041, 0x1000];
/// ID of vendor-specific capabilities, with which virtio describes its register structures (§4.1.4).
const VENDOR_CAPABILITY: u8 = 9;
/// Type (`cfg_type`) of the common configuration structure (§4.1.4).
const COMMON: u8 = 1;
/// Type of the notification structure.
const NOTIFY: u8 = 2;
/// Type of the device-specific configuration structure.
const OWN: u8 = 4;
/// Value of a vector register that disables the interrupt (`VIRTIO_MSI_NO_VECTOR`).
const NO_VECTOR: u16 = 0xffff;
/// Number of descriptors of the control virtqueue.
const CONTROL_SIZE: u16 = 16;
/// Maximum wait for a reset, or for the answer to a control command.
const LIMIT: Duration = Duration::from_secs(2);

/// Offsets in the common configuration structure in bytes (§4.1.4.3).
mod at {
    pub const DEVICE_FEATURE_SELECT: usize = 0;
    pub const DEVICE_FEATURE: usize = 4;
    pub const DRIVER_FEATURE_SELECT: usize = 8;
    pub const DRIVER_FEATURE: usize = 12;
    pub const CONFIG_VECTOR: usize = 16;
    pub const STATUS: usize = 20;
    pub const QUEUE_SELECT: usize = 22;
    pub const QUEUE_SIZE: usize = 24;
    pub const QUEUE_VECTOR: usize = 26;
    pub const QUEUE_ENABLE: usize = 28;
    pub const QUEUE_NOTIFY_OFF: usize = 30;
    pub const QUEUE_DESC: usize = 32;
    pub const QUEUE_DRIVER: usize = 40;
    pub const QUEUE_DEVICE: usize = 48;
    /// Length of the common configuration structure in bytes.
    pub const LEN: usize = 56;
}

/// Bits of the device status register (§2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
}

/// The reason why a device cannot be started, or why its session ended.
#[derive(Debug, Error)]
pub enum NoDevice {
    /// The PCI function cannot be opened or driven through vfio.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// The function is not a virtio-net device.
    #[error("device {vendor:04x}:{device:04x} is not a virtio-net device")]
    NotVirtio {
        /// PCI vendor ID.
        vendor: u16,
        /// PCI device ID.
        device: u16,
    },
    /// The device lacks a feature that this driver needs, or does not do what its features promise.
    #[error("the device lacks {0}")]
    MissingFeature(&'static str),
    /// The device bypasses the IOMMU, so vfio cannot give it access to netvale's memory.
    #[error("the device bypasses the IOMMU: it needs VIRTIO_F_ACCESS_PLATFORM (QEMU: iommu_platform=on)")]
    PastIommu,
    /// The device's queues could not be handed to the worker threads.
    #[error(transparent)]
    Lend(#[from] LendError),
    /// A system call failed.
    #[error("{0}")]
    System(Errno),
    /// The running device reports a failure that only a reset can clear (`DEVICE_NEEDS_RESET`).
    #[error("the device needs a reset")]
    NeedsReset,
    /// The device is being unbound or unplugged.
    #[error("the kernel requests the device's release")]
    WantedBack,
}

impl NoDevice {
    /// Returns the errno that is closest to this error.
    pub fn errno(&self) -> Errno {
        match self {
            NoDevice::System(errno) => *errno,
            NoDevice::Pci(why) => why.errno(),
            NoDevice::MissingFeature(_) | NoDevice::PastIommu => Errno::OPNOTSUPP,
            NoDevice::NotVirtio { .. } | NoDevice::WantedBack => Errno::NODEV,
            NoDevice::Lend(_) | NoDevice::NeedsReset => Errno::IO,
        }
    }
}

/// The PCI address of a device, which is opened anew for each session.
pub struct BusAddress(String);

impl BusAddress {
    /// Checks that the device at `address` can be opened, so that the caller gets an error now; otherwise, the error
    /// would only be logged later.
    ///
    /// # Errors
    /// [`NoDevice`] if the device does not exist or cannot be used.
    pub fn at(address: &str) -> Result<BusAddress, NoDevice> {
        PciDevice::open(address)?;
        Ok(BusAddress(address.to_owned()))
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Transport for BusAddress {
    type Connection = ();
    type Error = NoDevice;

    fn connect(&mut self) -> Result<(), NoDevice> {
        Ok(())
    }

    fn serve(&mut self, (): (), session: &PortSession<'_>) -> Result<(), NoDevice> {
        let bell = || Doorbell::new().map_err(NoDevice::System);
        let changed = bell()?;
        let wanted = bell()?;
        let device = PciDevice::open(&self.0)?;
        let (running, registers) =
            device.start(session.options(), session.calls(), &changed, &wanted, session.fault())?;
        changed.ring();
        session.run(running, [changed.as_fd(), wanted.as_fd()], None, |back| {
            changed.drain();
            if back {
                return Err(NoDevice::WantedBack);
            }
            if registers.needs_reset() {
                return Err(NoDevice::NeedsReset);
            }
            session.tell_link(registers.link());
            Ok(())
        })
    }
}

/// A device that is opened but not started.
struct PciDevice {
    function: PciFunction,
    common: MappedBar,
    notify: Arc<MappedBar>,
    multiplier: usize,
    own: Option<MappedBar>,
}

/// The registers of a running device that the control thread reads: device status and link state.
struct DeviceRegisters {
    common: MappedBar,
    own: Option<MappedBar>,
    /// Keeps the function open while the queues are used.
    _function: PciFunction,
}

impl DeviceRegisters {
    /// Returns whether the device reports a failure that only a reset can clear.
    fn needs_reset(&self) -> bool {
        self.common.read8(at::STATUS) & status::NEEDS_RESET != 0
    }

    /// Returns whether the link is up; always true for a device that does not report its link state.
    fn link(&self) -> bool {
        self.own.as_ref().is_none_or(|own| own.read16(6) & 1 != 0)
    }
}

impl PciDevice {
    /// Opens the virtio-net device at `address`.
    fn open(address: &str) -> Result<PciDevice, NoDevice> {
        let function = PciFunction::open(address)?;
        let (vendor, device) = function.id();
        if vendor != VENDOR || !DEVICES.contains(&device) {
            return Err(NoDevice::NotVirtio { vendor, device });
        }
        function.enable()?;
        let (common, _) = structure(&function, COMMON)?.ok_or(NoDevice::MissingFeature("virtio 1.0"))?;
        let (notify, multiplier) =
            structure(&function, NOTIFY)?.ok_or(NoDevice::MissingFeature("a register for kicks"))?;
        if common.len() < at::LEN {
            return Err(NoDevice::MissingFeature("common registers of full size"));
        }
        let own = structure(&function, OWN)?.map(|(bar, _)| bar);
        Ok(PciDevice { function, common, notify: Arc::new(notify), multiplier: multiplier as usize, own })
    }

    /// Negotiates features and starts all queues. [`PortSession::calls`] describes `calls`. `changed` is rung when the
    /// device's state changes, and `wanted` is rung when the kernel requests the device's release. Workers report the
    /// device's violations to `fault`.
    fn start(
        mut self,
        options: DriverOptions,
        calls: &[Doorbell],
        changed: &Doorbell,
        wanted: &Doorbell,
        fault: &Fault,
    ) -> Result<(RunningVirtioDevice, DeviceRegisters), NoDevice> {
        self.reset()?;
        self.say(status::ACKNOWLEDGE | status::DRIVER);
        let features = self.negotiate(options)?;
        let pairs = self.pairs(features, options);
        self.listen(calls, pairs, changed, wanted)?;
        let size = self.queue_size(options.size);
        let mut sizes = vec![size; 2 * usize::from(pairs)];
        if features & MQ != 0 {
            sizes.push(CONTROL_SIZE);
        }
        let (ram, queues) = DriverRam::new(&sizes).map_err(NoDevice::System)?;
        ram.mapping().blame(fault);
        self.function.give(ram.mapping(), ram.spec().guest)?;
        let mut started = Vec::new();
        for (i, queue) in queues.into_iter().enumerate() {
            let i = i as u16;
            let place = if i < 2 * pairs { i } else { self.control_queue() };
            // Transmit queues need no interrupt.
            let vector = if i < 2 * pairs && i.is_multiple_of(2) { 1 + i / 2 } else { NO_VECTOR };
            started.push(self.start_queue(place, queue, vector, features, options, fault)?);
        }
        self.say(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK);
        if features & MQ != 0 {
            let mut control = started.pop().ok_or(NoDevice::MissingFeature("a control queue"))?;
            set_pairs(&mut control, pairs)?;
        }
        let own = self.own.filter(|_| features & STATUS != 0);
        let running = RunningVirtioDevice { features, pairs: pair_up(started), ram };
        Ok((running, DeviceRegisters { common: self.common, own, _function: self.function }))
    }

    fn say(&self, bits: u8) {
        self.common.write8(at::STATUS, bits);
    }

    /// Resets the device, which reports status 0 when done (§2.4.1).
    fn reset(&self) -> Result<(), NoDevice> {
        self.say(0);
        wait_until(|| self.common.read8(at::STATUS) == 0).ok_or(NoDevice::MissingFeature("a completed reset"))
    }

    fn negotiate(&self, options: DriverOptions) -> Result<u64, NoDevice> {
        let half = |n: u32| {
            self.common.write32(at::DEVICE_FEATURE_SELECT, n);
            u64::from(self.common.read32(at::DEVICE_FEATURE)) << (32 * n)
        };
        let offered = half(0) | half(1);
        if offered & VERSION_1 == 0 {
            return Err(NoDevice::MissingFeature("virtio 1.0"));
        }
        if offered & ACCESS_PLATFORM == 0 {
            return Err(NoDevice::PastIommu);
        }
        let control = if options.pairs > 1 { CTRL_VQ } else { 0 };
        let wanted = options.features() | ACCESS_PLATFORM | ORDER_PLATFORM | STATUS | control;
        let mut features = offered & wanted;
        if features & CTRL_VQ == 0 {
            features &= !MQ;
        }
        for n in [0u32, 1] {
            self.common.write32(at::DRIVER_FEATURE_SELECT, n);
            self.common.write32(at::DRIVER_FEATURE, (features >> (32 * n)) as u32);
        }
        self.say(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK);
        if self.common.read8(at::STATUS) & status::FEATURES_OK == 0 {
            return Err(NoDevice::MissingFeature("features that its other features need"));
        }
        Ok(features)
    }

    /// Returns the device's maximum number of queue pairs (`max_virtqueue_pairs`); 1 if the device has no such field.
    fn most_pairs(&self) -> u16 {
        self.own.as_ref().filter(|own| own.len() >= 10).map_or(1, |own| own.read16(8).max(1))
    }

    fn pairs(&self, features: u64, options: DriverOptions) -> u16 {
        let interrupts = u16::try_from(self.function.interrupt_count()).unwrap_or(u16::MAX);
        let most = if features & MQ != 0 { self.most_pairs() } else { 1 };
        options.pairs.min(most).min(interrupts.saturating_sub(1)).max(1)
    }

    /// Returns the index of the control virtqueue, which follows the queues of all pairs that the device offers
    /// (§5.1.2).
    fn control_queue(&self) -> u16 {
        2 * self.most_pairs()
    }

    fn queue_size(&self, wanted: u16) -> u16 {
        self.common.write16(at::QUEUE_SELECT, 0);
        // The size must be a power of two in a split ring, and may be one in a packed ring.
        let most = self.common.read16(at::QUEUE_SIZE).max(1);
        wanted.min(1 << most.ilog2())
    }

    /// Connects MSI-X vector 0, which reports changes of the device's state, to `changed`; the following vectors to the
    /// doorbells of the receive queues; and the kernel's request for the device's release to `wanted`.
    fn listen(&self, calls: &[Doorbell], pairs: u16, changed: &Doorbell, wanted: &Doorbell) -> Result<(), NoDevice> {
        let received = calls.iter().step_by(2).take(pairs.into());
        let bells: Vec<&Doorbell> = std::iter::once(changed).chain(received).collect();
        self.function.interrupts(&bells)?;
        self.function.when_wanted_back(wanted)?;
        self.common.write16(at::CONFIG_VECTOR, 0);
        if self.common.read16(at::CONFIG_VECTOR) == NO_VECTOR {
            return Err(NoDevice::MissingFeature("message interrupts"));
        }
        Ok(())
    }

    fn start_queue(
        &self,
        place: u16,
        ram: QueueRam,
        vector: u16,
        features: u64,
        options: DriverOptions,
        fault: &Fault,
    ) -> Result<RunningQueue, NoDevice> {
        let c = &self.common;
        c.write16(at::QUEUE_SELECT, place);
        if c.read16(at::QUEUE_SIZE) < ram.size() {
            return Err(NoDevice::MissingFeature("a queue of that size"));
        }
        c.write16(at::QUEUE_SIZE, ram.size());
        let queue = DriverQueue::new(&ram, DriverFeatures::of(features, options));
        c.write64(at::QUEUE_DESC, ram.device_address(ram.desc()));
        c.write64(at::QUEUE_DRIVER, ram.device_address(ram.avail()));
        c.write64(at::QUEUE_DEVICE, ram.device_address(ram.used()));
        c.write16(at::QUEUE_VECTOR, vector);
        if vector != NO_VECTOR && c.read16(at::QUEUE_VECTOR) == NO_VECTOR {
            return Err(NoDevice::MissingFeature("an interrupt for each queue"));
        }
        let register = usize::from(c.read16(at::QUEUE_NOTIFY_OFF)) * self.multiplier;
        c.write16(at::QUEUE_ENABLE, 1);
        let notify = Arc::clone(&self.notify);
        let kick = Kick::Register(Box::new(move || notify.write16(register, place)));
        Ok(RunningQueue::new(queue, ram, kick, features, fault))
    }
}

/// Returns the registers of the structure of type `kind`, and the 32 bits after its capability (for the notification
/// structure, `notify_off_multiplier`); `None` if the device lacks the structure.
fn structure(function: &PciFunction, kind: u8) -> Result<Option<(MappedBar, u32)>, PciError> {
    for capability in function.capabilities() {
        let at = capability.at;
        if capability.id == VENDOR_CAPABILITY && function.config8(at + 3) == kind {
            let bar = function.config8(at + 4).into();
            let offset = function.config32(at + 8);
            let len = function.config32(at + 12);
            return Ok(Some((function.bar(bar, offset.into(), len.into())?, function.config32(at + 16))));
        }
    }
    Ok(None)
}

/// Sets the number of queue pairs in use with a control command (`VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`, §5.1.6.5.6) of
/// three descriptors: class and command, the number, and a byte for the device's answer, 0 for success.
fn set_pairs(control: &mut RunningQueue, pairs: u16) -> Result<(), NoDevice> {
    let first = control.queue.take(3).ok_or(NoDevice::MissingFeature("room for a command"))?;
    let second = control.queue.link(first).unwrap_or(first);
    let third = control.queue.link(second).unwrap_or(second);
    control.ram.put(first, &[4, 0]);
    control.ram.put(second, &pairs.to_le_bytes());
    control.ram.put(third, &[1]);
    let len = |id| if id == third { 1 } else { 2 };
    control.queue.post(&control.ram, first, |id| id == third, len);
    if control.queue.publish() {
        control.kick.ring();
    }
    let answer = wait_until(|| !matches!(control.queue.next_used(), Ok(None)));
    if answer.is_none() || control.ram.first_byte(third) != 0 {
        return Err(NoDevice::MissingFeature("the multiple queues that it offered"));
    }
    Ok(())
}

/// Polls until `done` returns true; returns `None` if it does not do so within [`LIMIT`]. Hardware answers immediately,
/// an emulated device once a thread of the hypervisor has run.
fn wait_until(mut done: impl FnMut() -> bool) -> Option<()> {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > LIMIT {
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Some(())
}
