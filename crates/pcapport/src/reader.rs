//! Reading a capture, with memory bounded by its longest frame.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use thiserror::Error;

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Since 1970.
    pub time: Duration,
    /// Its bytes, as far as they were captured.
    pub bytes: Vec<u8>,
}

/// Why a capture cannot be read on.
#[derive(Debug, Error)]
pub enum ReadError {
    /// No such file, or no right to it.
    #[error("cannot open the capture: {0}")]
    Open(#[from] std::io::Error),
    /// Not a capture, or one that is damaged or cut.
    #[error("the capture is damaged or cut after {frames} frames: {source}")]
    Damaged {
        /// Whole frames before that.
        frames: u64,
        /// What is wrong.
        source: pcap_file::PcapError,
    },
    /// Frames of another kind.
    #[error("the capture's frames are {0:?}, not Ethernet: only Ethernet can cross a switch")]
    LinkType(DataLink),
}

enum Kind {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

/// An open capture.
pub struct Reader {
    kind: Kind,
    frames: u64,
}

impl Reader {
    /// Opens a pcap or pcapng file; which one it is, its first bytes say.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let mut magic = [0; 4];
        File::open(path)?.read_exact(&mut magic)?;
        let file = BufReader::new(File::open(path)?);
        let damaged = |source| ReadError::Damaged { frames: 0, source };
        let kind = if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
            Kind::PcapNg(PcapNgReader::new(file).map_err(damaged)?)
        } else {
            let reader = PcapReader::new(file).map_err(damaged)?;
            ethernet(reader.header().datalink)?;
            Kind::Pcap(reader)
        };
        Ok(Reader { kind, frames: 0 })
    }

    /// The next frame; none at the end.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] after the last whole frame of a file that was cut, [`ReadError::LinkType`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ReadError> {
        let frames = self.frames;
        let damaged = |source| ReadError::Damaged { frames, source };
        let frame = match &mut self.kind {
            Kind::Pcap(r) => r
                .next_packet()
                .transpose()
                .map_err(damaged)?
                .map(|p| Frame { time: p.timestamp, bytes: p.data.into_owned() }),
            Kind::PcapNg(r) => next_of_pcapng(r, frames)?,
        };
        self.frames += u64::from(frame.is_some());
        Ok(frame)
    }
}

fn ethernet(link: DataLink) -> Result<(), ReadError> {
    if link == DataLink::ETHERNET { Ok(()) } else { Err(ReadError::LinkType(link)) }
}

fn next_of_pcapng(r: &mut PcapNgReader<BufReader<File>>, frames: u64) -> Result<Option<Frame>, ReadError> {
    loop {
        let Some(block) = r.next_block() else { return Ok(None) };
        match block.map_err(|source| ReadError::Damaged { frames, source })? {
            Block::InterfaceDescription(i) => ethernet(i.linktype)?,
            Block::EnhancedPacket(p) => return Ok(Some(Frame { time: p.timestamp, bytes: p.data.into_owned() })),
            Block::SimplePacket(p) => return Ok(Some(Frame { time: Duration::ZERO, bytes: p.data.into_owned() })),
            _ => {}
        }
    }
}
