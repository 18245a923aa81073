//! The full specification of a port that an application opens.

use std::fmt;
use std::num::NonZeroU16;

use netvale_abi::NmreqRegister;

use crate::ParseError;
use crate::cursor::{Cursor, SpecResult, from_str};
use crate::flags::{Flags, Rings};
use crate::name::PortName;
use crate::options::{self, Conf, Extmem, Offset};
use crate::word::RingSuffix;

/// The memory region in which to open the port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Memory {
    /// The host chooses.
    #[default]
    Auto,
    /// `@N`: the region with this ID; network interfaces share region 1.
    Id(NonZeroU16),
    /// `@share:port`: the region of that port.
    SharedWith(PortName),
    /// `@extmem:…`: a file's memory.
    External(Extmem),
}

/// A port to open, and how to open it: `name[rings][@N][/flags][@option…]`.
///
/// `Display` writes the canonical form, which parses to an equal value.
///
/// A trailing `-` and number may be a ring or part of the name (`vnet-3`); only the host can decide
/// ([`PortSpec::settled`]). Quotes remove the ambiguity: `'vnet'-3`, `'vnet-3'`.
///
/// ```
/// use netvale_abi::nmreq::{NR_EXCLUSIVE, NR_REG_ONE_NIC};
/// use netvale_portspec::PortSpec;
/// let spec = PortSpec::parse("eth0-2/x")?;
/// assert_eq!(spec.to_string(), "netmap:eth0-2/x");
/// let reg = spec.to_register();
/// assert_eq!((reg.nr_mode, reg.nr_ringid, reg.nr_flags), (NR_REG_ONE_NIC, 2, NR_EXCLUSIVE));
/// # Ok::<(), netvale_portspec::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortSpec {
    /// The port's name.
    pub name: PortName,
    /// The rings to bind.
    pub rings: Rings,
    /// The memory region.
    pub memory: Memory,
    /// Flags of the binding.
    pub flags: Flags,
    /// Numbers of rings and slots, if the open creates the port.
    pub conf: Conf,
    /// Offset of frames in their buffers; `None` without the option.
    pub offset: Option<Offset>,
    /// The name including a trailing `-` and number, until [`Self::settled`] decides whether they are a ring; `None` if
    /// the text is unambiguous.
    whole: Option<PortName>,
}

impl From<PortName> for PortSpec {
    /// Returns a specification with defaults for everything but the name.
    fn from(name: PortName) -> Self {
        Self {
            name,
            rings: Rings::default(),
            memory: Memory::default(),
            flags: Flags::default(),
            conf: Conf::default(),
            offset: None,
            whole: None,
        }
    }
}

impl PortSpec {
    /// Parses a specification; the error points at the first wrong character.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Cursor::all(text, "'@' and an option, or the end", Self::take)
    }

    /// Returns the request for this port: mode, ring, flags, memory ID, numbers of rings and slots; all else is zero.
    ///
    /// Only `@N` sets a memory ID. The host looks up the ID for [`Memory::SharedWith`]; [`Memory::External`] and
    /// `offset` become options of the request. The name is in the request's header ([`PortName::nr_name_field`]).
    pub fn to_register(&self) -> NmreqRegister {
        let (nr_mode, nr_ringid) = self.rings.mode();
        let nr_mem_id = match self.memory {
            Memory::Id(id) => id.get(),
            Memory::Auto | Memory::SharedWith(_) | Memory::External(_) => 0,
        };
        NmreqRegister {
            nr_tx_slots: self.conf.tx_slots,
            nr_rx_slots: self.conf.rx_slots,
            nr_tx_rings: self.conf.tx_rings,
            nr_rx_rings: self.conf.rx_rings,
            nr_host_tx_rings: self.conf.host_tx_rings,
            nr_host_rx_rings: self.conf.host_rx_rings,
            nr_mem_id,
            nr_ringid,
            nr_mode,
            nr_flags: self.flags.nr_flags(),
            ..NmreqRegister::default()
        }
    }

    /// Decides whether a trailing number is a ring or part of the name: part of the name if `exists` returns true for
    /// the whole name.
    #[must_use]
    pub fn settled(self, exists: impl FnOnce(&PortName) -> bool) -> Self {
        match self.whole {
            Some(whole) if exists(&whole) => Self { name: whole, rings: Rings::AllNic, whole: None, ..self },
            _ => Self { whole: None, ..self },
        }
    }

    /// Returns the name as written, including a trailing number that may be part of it; otherwise [`Self::name`].
    pub fn written_name(&self) -> &PortName {
        self.whole.as_ref().unwrap_or(&self.name)
    }

    /// Returns both names that the text may mean, in order of precedence: the first that exists applies.
    pub fn names(&self) -> [&PortName; 2] {
        [self.written_name(), &self.name]
    }

    pub(crate) fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let start = cursor.pos();
        let mut spec = Self::from(PortName::take(cursor, RingSuffix::MayFollow)?);
        let is_closed = cursor.since(start).ends_with('\'');
        spec.rings = Rings::take(cursor)?;
        if matches!(spec.rings, Rings::OneNic(_)) && !is_closed {
            let after = cursor.pos();
            cursor.rewind(start);
            spec.whole = PortName::take(cursor, RingSuffix::IsOfTheName).ok();
            cursor.rewind(after);
        }
        spec.take_memory_and_flags(cursor)?;
        spec.take_options(cursor)?;
        Ok(spec)
    }

    /// Takes `@N` and `/flags`, in any order, until other text follows.
    fn take_memory_and_flags(&mut self, cursor: &mut Cursor<'_>) -> SpecResult<()> {
        let mut chosen = false;
        let mut letters = String::new();
        loop {
            let start = cursor.pos();
            if cursor.eat("/") {
                Flags::take(cursor, &mut letters)?;
            } else if cursor.eat("@") && cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
                if chosen {
                    return Err(cursor.fail("no second region number"));
                }
                let id = cursor.number(10, 0..=u64::from(u16::MAX), "a memory region number")?;
                self.memory = u16::try_from(id).ok().and_then(NonZeroU16::new).map_or(Memory::Auto, Memory::Id);
                chosen = true;
            } else {
                cursor.rewind(start);
                break;
            }
        }
        self.flags = Flags::of(&letters);
        match cursor.peek() {
            None | Some('@') => Ok(()),
            Some(_) if chosen => Err(cursor.fail("'/' and flags, '@' and a region number or an option, or the end")),
            Some(_) if self.rings == Rings::AllNic => {
                Err(cursor.fail("rings ('-', '^', '*'), flags ('/'), a region or an option ('@'), or the end"))
            }
            Some(_) => Err(cursor.fail("flags ('/'), a region or an option ('@'), or the end")),
        }
    }

    fn take_options(&mut self, cursor: &mut Cursor<'_>) -> SpecResult<()> {
        let mut seen = Vec::new();
        while cursor.eat("@") {
            let at = cursor.pos();
            let name = cursor.take_while(|c| c.is_ascii_lowercase());
            if seen.contains(&name) {
                return Err(cursor.fail_at(at, format!("another option: '{name}' is already given")));
            }
            match name {
                "share" | "extmem" if self.memory != Memory::Auto => {
                    return Err(cursor.fail_at(at, "no second choice of the memory region"));
                }
                "share" => {
                    options::take_share(cursor)?;
                    self.memory = Memory::SharedWith(PortName::take(cursor, RingSuffix::IsOfTheName)?);
                }
                "extmem" => self.memory = Memory::External(Extmem::take(cursor)?),
                "conf" => self.conf = Conf::take(cursor)?,
                "offset" => self.offset = Some(Offset::take(cursor)?),
                _ => return Err(cursor.fail_at(at, "an option: share, conf, extmem or offset")),
            }
            seen.push(name);
        }
        Ok(())
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rings, memory, flags, conf, offset, whole } = self;
        match whole {
            Some(whole) => whole.fmt(f)?,
            None if name.ends_like_a_ring() || matches!(rings, Rings::OneNic(_)) => {
                name.write_closed(f)?;
                rings.fmt(f)?;
            }
            None => write!(f, "{name}{rings}")?,
        }
        match memory {
            Memory::Auto => write!(f, "{flags}")?,
            Memory::Id(id) => write!(f, "@{id}{flags}")?,
            Memory::SharedWith(port) => write!(f, "{flags}@share:{port}")?,
            Memory::External(extmem) => write!(f, "{flags}{extmem}")?,
        }
        write!(f, "{conf}")?;
        offset.map_or(Ok(()), |offset| offset.fmt(f))
    }
}

from_str!(PortSpec);
