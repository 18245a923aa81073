//! The rings of a port to bind, and the flags of the binding.

use std::fmt;

use netvale_abi::nmreq::{
    NR_EXCLUSIVE, NR_MONITOR_RX, NR_MONITOR_TX, NR_REG_ALL_NIC, NR_REG_NIC_SW, NR_REG_ONE_NIC, NR_REG_ONE_SW,
    NR_REG_SW, NR_RX_RINGS_ONLY, NR_TX_RINGS_ONLY, NR_ZCOPY_MON,
};

use crate::cursor::{Cursor, SpecResult};
use crate::text::RingIndex;

/// The rings of the port to bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rings {
    /// No suffix: all NIC rings (of a VALE port or a pipe: all rings).
    #[default]
    AllNic,
    /// `-N`: one NIC ring in each direction.
    OneNic(RingIndex),
    /// `^`: all host rings.
    AllHost,
    /// `^N`: one host ring in each direction.
    OneHost(RingIndex),
    /// `*`: all NIC and all host rings.
    NicAndHost,
}

/// One or both directions, seen from the port: the application sends on tx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Directions {
    /// Tx and rx.
    #[default]
    Both,
    /// Tx only.
    Tx,
    /// Rx only.
    Rx,
}

/// A monitor: a port opened to watch another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MonitorSpec {
    /// Directions to watch.
    pub directions: Directions,
    /// Whether the monitor shares buffers (`z`) instead of copying frames.
    pub zero_copy: bool,
}

/// The flags of a binding: the letters after `/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// `x`: whether all other bindings of these rings are refused.
    pub exclusive: bool,
    /// `z`, `t`, `r`: the monitor of the port to open, if a monitor is requested. `z` alone watches both directions.
    pub monitor: Option<MonitorSpec>,
    /// `R`, `T`: the directions whose rings are bound.
    pub directions: Directions,
}

impl Rings {
    /// Returns `nr_mode` and `nr_ringid`.
    pub fn mode(self) -> (u32, u16) {
        match self {
            Self::AllNic => (NR_REG_ALL_NIC, 0),
            Self::OneNic(ring) => (NR_REG_ONE_NIC, ring.get()),
            Self::AllHost => (NR_REG_SW, 0),
            Self::OneHost(ring) => (NR_REG_ONE_SW, ring.get()),
            Self::NicAndHost => (NR_REG_NIC_SW, 0),
        }
    }

    pub(crate) fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        if cursor.eat("-") {
            return RingIndex::take(cursor, "a ring number").map(Self::OneNic);
        }
        if cursor.eat("*") {
            return Ok(Self::NicAndHost);
        }
        if !cursor.eat("^") {
            return Ok(Self::AllNic);
        }
        if !cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Ok(Self::AllHost);
        }
        RingIndex::take(cursor, "a ring number").map(Self::OneHost)
    }
}

impl Directions {
    /// Returns the bits of these directions: `tx`, `rx`, or both.
    fn bits(self, tx: u64, rx: u64) -> u64 {
        match self {
            Self::Both => tx | rx,
            Self::Tx => tx,
            Self::Rx => rx,
        }
    }

    /// Returns the requested direction; both if both or neither are requested.
    fn of(tx: bool, rx: bool) -> Self {
        match (tx, rx) {
            (true, false) => Self::Tx,
            (false, true) => Self::Rx,
            _ => Self::Both,
        }
    }
}

impl Flags {
    /// Returns `nr_flags`.
    pub fn nr_flags(&self) -> u64 {
        let exclusive = if self.exclusive { NR_EXCLUSIVE } else { 0 };
        let monitor = self.monitor.map_or(0, |monitor| {
            let zero_copy = if monitor.zero_copy { NR_ZCOPY_MON } else { 0 };
            zero_copy | monitor.directions.bits(NR_MONITOR_TX, NR_MONITOR_RX)
        });
        let only = match self.directions {
            Directions::Both => 0,
            one => one.bits(NR_TX_RINGS_ONLY, NR_RX_RINGS_ONLY),
        };
        exclusive | monitor | only
    }

    /// Takes the letters after a `/`, at least one, and adds them to `letters`.
    pub(crate) fn take(cursor: &mut Cursor<'_>, letters: &mut String) -> SpecResult<()> {
        const EXPECTED: &str = "a flag: x, z, t, r, R or T";
        let start = cursor.pos();
        while let Some(flag) = cursor.peek().filter(|&c| c != '@') {
            if !"xztrRT".contains(flag) {
                return Err(cursor.fail(EXPECTED));
            }
            if (flag == 'R' && letters.contains('T')) || (flag == 'T' && letters.contains('R')) {
                return Err(cursor.fail("only one of R and T"));
            }
            letters.push(flag);
            cursor.eat(flag.encode_utf8(&mut [0; 4]));
        }
        if cursor.since(start).is_empty() { Err(cursor.fail(EXPECTED)) } else { Ok(()) }
    }

    /// Returns the flags that these letters set together.
    pub(crate) fn of(letters: &str) -> Self {
        let has = |letter| letters.contains(letter);
        let zero_copy = has('z');
        let monitor = MonitorSpec { directions: Directions::of(has('t'), has('r')), zero_copy };
        Self {
            exclusive: has('x'),
            monitor: (zero_copy || has('t') || has('r')).then_some(monitor),
            directions: Directions::of(has('T'), has('R')),
        }
    }

    fn letters(&self) -> String {
        let mut letters = String::new();
        letters.push_str(if self.exclusive { "x" } else { "" });
        letters.push_str(match self.monitor {
            None => "",
            Some(MonitorSpec { zero_copy: false, directions: Directions::Both }) => "tr",
            Some(MonitorSpec { zero_copy: false, directions: Directions::Tx }) => "t",
            Some(MonitorSpec { zero_copy: false, directions: Directions::Rx }) => "r",
            Some(MonitorSpec { zero_copy: true, directions: Directions::Both }) => "z",
            Some(MonitorSpec { zero_copy: true, directions: Directions::Tx }) => "zt",
            Some(MonitorSpec { zero_copy: true, directions: Directions::Rx }) => "zr",
        });
        letters.push_str(match self.directions {
            Directions::Both => "",
            Directions::Tx => "T",
            Directions::Rx => "R",
        });
        letters
    }
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllNic => Ok(()),
            Self::OneNic(ring) => write!(f, "-{ring}"),
            Self::AllHost => f.write_str("^"),
            Self::OneHost(ring) => write!(f, "^{ring}"),
            Self::NicAndHost => f.write_str("*"),
        }
    }
}

/// Writes the flags after a `/`; nothing if none is set.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.letters().as_str() {
            "" => Ok(()),
            letters => write!(f, "/{letters}"),
        }
    }
}
