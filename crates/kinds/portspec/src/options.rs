//! The options after a port's name: `@conf`, `@extmem`, `@offset`, each a list of keys and values.

use std::fmt;

use crate::cursor::{Cursor, SpecResult};
use crate::text::{ExtmemFile, OffsetBits};

/// `@conf`: numbers of rings and slots, for a port that the open creates; 0 leaves the choice to the host.
///
/// In the text, `rings`, `host-rings` and `slots` set both directions, unless a more specific key overrides them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conf {
    /// Number of tx rings.
    pub tx_rings: u16,
    /// Number of rx rings.
    pub rx_rings: u16,
    /// Number of host tx rings.
    pub host_tx_rings: u16,
    /// Number of host rx rings.
    pub host_rx_rings: u16,
    /// Number of slots of each tx ring.
    pub tx_slots: u32,
    /// Number of slots of each rx ring.
    pub rx_slots: u32,
}

/// `@extmem`: opens the port in the memory of a file. Numbers and sizes of 0 leave the choice to the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extmem {
    /// File to map.
    pub file: ExtmemFile,
    /// Number of `netmap_if`s.
    pub if_num: u32,
    /// Bytes of each `netmap_if`.
    pub if_size: u32,
    /// Number of rings.
    pub ring_num: u32,
    /// Bytes of each ring: header and slots.
    pub ring_size: u32,
    /// Number of buffers.
    pub buf_num: u32,
    /// Bytes of each buffer.
    pub buf_size: u32,
}

/// `@offset`: frames begin at an offset in their buffers, which each slot holds in its `ptr`. libnetmap refuses the
/// option until the program enables it. Other code that opens ports for a program must do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offset {
    /// Initial offset of every slot, in bytes.
    pub initial: u64,
    /// Number of low bits of `ptr` that hold the offset; `None` for all.
    pub bits: Option<OffsetBits>,
}

/// The keys of an option with the maxima of their values.
type KeyMaxima = [(&'static str, u64)];

const RINGS: u64 = u16::MAX as u64;
const COUNT: u64 = u32::MAX as u64;

const CONF: &KeyMaxima = &[
    ("rings", RINGS),
    ("tx-rings", RINGS),
    ("rx-rings", RINGS),
    ("host-rings", RINGS),
    ("host-tx-rings", RINGS),
    ("host-rx-rings", RINGS),
    ("slots", COUNT),
    ("tx-slots", COUNT),
    ("rx-slots", COUNT),
];

const EXTMEM: &KeyMaxima = &[
    ("if-num", COUNT),
    ("if-size", COUNT),
    ("ring-num", COUNT),
    ("ring-size", COUNT),
    ("buf-num", COUNT),
    ("buf-size", COUNT),
];

const OFFSET: &KeyMaxima = &[("initial", u64::MAX), ("bits", 64)];

/// The numbers that one option assigns.
#[derive(Default)]
struct AssignedNumbers(Vec<(&'static str, u64)>);

impl AssignedNumbers {
    fn get(&self, key: &str) -> Option<u64> {
        self.0.iter().find_map(|&(name, value)| (name == key).then_some(value))
    }

    /// Returns the first of `keys` that was assigned, else 0. Values fit `T`, because the tables above limit them.
    fn number<T: TryFrom<u64> + Default>(&self, keys: &[&str]) -> T {
        let value = keys.iter().find_map(|key| self.get(key)).unwrap_or_default();
        T::try_from(value).unwrap_or_default()
    }

    /// Takes the value of `key`, which must be in `keys` and not assigned yet.
    fn take(&mut self, cursor: &mut Cursor<'_>, at: usize, keys: &KeyMaxima, key: &str) -> SpecResult<()> {
        let Some(&(name, max)) = keys.iter().find(|(name, _)| *name == key) else {
            let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
            return Err(cursor.fail_at(at, format!("one of the keys {}", names.join(", "))));
        };
        if self.get(name).is_some() {
            return Err(cursor.fail_at(at, format!("another key: '{name}' is already set")));
        }
        let value = cursor.number(10, 0..=max, &format!("a number for '{name}'"))?;
        self.0.push((name, value));
        Ok(())
    }
}

/// Takes `key=` and returns the key; before a value without a key, returns `None` without moving.
fn take_key<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let start = cursor.pos();
    let key = cursor.take_while(|c| c.is_ascii_lowercase() || c == '-');
    if !key.is_empty() && cursor.eat("=") {
        return Some(key);
    }
    cursor.rewind(start);
    None
}

/// Takes the separator between an option's name and its value. Returns `true` for `:`, after which values may have
/// keys; `false` for `=`, which precedes a single value.
fn take_separator(cursor: &mut Cursor<'_>) -> SpecResult<bool> {
    if cursor.eat("=") {
        return Ok(false);
    }
    cursor.expect(":", "':' and the option's value")?;
    Ok(true)
}

/// Calls `assign` for each value with the value's position and key. The key is `default` if the text has none.
fn assignments<'a>(
    cursor: &mut Cursor<'a>,
    default: &'a str,
    mut assign: impl FnMut(&mut Cursor<'a>, usize, &str) -> SpecResult<()>,
) -> SpecResult<()> {
    let keys = take_separator(cursor)?;
    loop {
        let at = cursor.pos();
        let key = if keys { take_key(cursor) } else { None };
        assign(cursor, at, key.unwrap_or(default))?;
        if !keys || !cursor.eat(",") {
            return Ok(());
        }
    }
}

/// Takes the text before the port in `@share`: a separator and, optionally, `port=`.
pub(crate) fn take_share(cursor: &mut Cursor<'_>) -> SpecResult<()> {
    if take_separator(cursor)? {
        cursor.eat("port=");
    }
    Ok(())
}

impl Conf {
    pub(crate) fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let mut set = AssignedNumbers::default();
        assignments(cursor, "rings", |c, at, key| set.take(c, at, CONF, key))?;
        Ok(Self {
            tx_rings: set.number(&["tx-rings", "rings"]),
            rx_rings: set.number(&["rx-rings", "rings"]),
            host_tx_rings: set.number(&["host-tx-rings", "host-rings"]),
            host_rx_rings: set.number(&["host-rx-rings", "host-rings"]),
            tx_slots: set.number(&["tx-slots", "slots"]),
            rx_slots: set.number(&["rx-slots", "slots"]),
        })
    }
}

impl Extmem {
    pub(crate) fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let mut set = AssignedNumbers::default();
        let mut file = None;
        let start = cursor.pos();
        assignments(cursor, "file", |c, at, key| {
            if key != "file" {
                return set.take(c, at, EXTMEM, key);
            }
            if file.is_some() {
                return Err(c.fail_at(at, "another key: 'file' is already set"));
            }
            file = Some(ExtmemFile::take(c, "a file's path")?);
            Ok(())
        })?;
        Ok(Self {
            file: file.ok_or_else(|| cursor.fail_at(start, "'file=' and a path among the values of 'extmem'"))?,
            if_num: set.number(&["if-num"]),
            if_size: set.number(&["if-size"]),
            ring_num: set.number(&["ring-num"]),
            ring_size: set.number(&["ring-size"]),
            buf_num: set.number(&["buf-num"]),
            buf_size: set.number(&["buf-size"]),
        })
    }
}

impl Offset {
    pub(crate) fn take(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let mut set = AssignedNumbers::default();
        let start = cursor.pos();
        assignments(cursor, "initial", |c, at, key| set.take(c, at, OFFSET, key))?;
        let missing = || cursor.fail_at(start, "'initial=' and a number among the values of 'offset'");
        Ok(Self { initial: set.get("initial").ok_or_else(missing)?, bits: OffsetBits::new(set.number(&["bits"])) })
    }
}

/// Writes `@name:` and the assignments that are not 0; nothing if all are 0.
fn write_option(f: &mut fmt::Formatter<'_>, name: &str, values: &[(&str, u64)]) -> fmt::Result {
    let mut lead = format!("@{name}:");
    for (key, value) in values.iter().filter(|(_, value)| *value != 0) {
        write!(f, "{lead}{key}={value}")?;
        lead = ",".into();
    }
    Ok(())
}

/// Returns the assignments for the values `tx` and `rx`: to the common key if they are equal, otherwise to one key for
/// each direction. Unused keys get 0.
fn both(keys: [&str; 3], tx: u64, rx: u64) -> [(&str, u64); 3] {
    let [common, only_tx, only_rx] = keys;
    if tx == rx { [(common, tx), (only_tx, 0), (only_rx, 0)] } else { [(common, 0), (only_tx, tx), (only_rx, rx)] }
}

/// Writes the option with its `@`; nothing if the host chooses everything.
impl fmt::Display for Conf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rings = both(["rings", "tx-rings", "rx-rings"], self.tx_rings.into(), self.rx_rings.into());
        let host = both(
            ["host-rings", "host-tx-rings", "host-rx-rings"],
            self.host_tx_rings.into(),
            self.host_rx_rings.into(),
        );
        let slots = both(["slots", "tx-slots", "rx-slots"], self.tx_slots.into(), self.rx_slots.into());
        write_option(f, "conf", [rings, host, slots].as_flattened())
    }
}

/// Writes the option with its `@`.
impl fmt::Display for Extmem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@extmem:file={}", self.file)?;
        let values = [self.if_num, self.if_size, self.ring_num, self.ring_size, self.buf_num, self.buf_size];
        for ((key, _), value) in EXTMEM.iter().zip(values).filter(|(_, value)| *value != 0) {
            write!(f, ",{key}={value}")?;
        }
        Ok(())
    }
}

/// Writes the option with its `@`.
impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@offset:initial={}", self.initial)?;
        self.bits.map_or(Ok(()), |bits| write!(f, ",bits={bits}"))
    }
}
