//! The files in which rows wait to be exported, in the log's folder: `<from>.events`, and `<cut>.cut`.
//!
//! A file is a block that says what it is, then pieces: rows of one table as an Arrow IPC stream. The block is written when
//! all pieces are, so that a file without it is a half-made one; each piece has a checksum of its own. All numbers are
//! little-endian.
//!
//! Block: magic `STERNASN`, version (4), kind (4; 1 events, 2 a cut), store (16), number, from, to, epoch (8 each), length of the
//! pieces, rows (8 each), time (8), checksum of all of it (4). Piece: checksum of the rest (4), table (1), zero (3), rows (4),
//! length (4), the stream.

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;

use crate::log::Position;
use crate::log::disk::{Disk, DiskError, DiskFile, OpenFile, read_full, write_all};

const MAGIC: &[u8; 8] = b"STERNASN";
const VERSION: u32 = 1;
/// Where the pieces begin.
const HEADER_BYTES: u64 = 4096;
const HEADER_USED: usize = 8 + 4 + 4 + 16 + 8 * 7;
const PIECE_BYTES: usize = 16;
/// A longer piece is no piece of ours.
pub const PIECE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Which kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// What happened between two positions.
    Events = 1,
    /// What there was at one.
    Cut = 2,
}

impl Kind {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Cut => "cut",
        }
    }
}

/// What a file says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which kind.
    pub kind: Kind,
    /// Whose rows.
    pub store_id: [u8; 16],
    /// The cut's number; 0 for events.
    pub number: u64,
    /// The first record that it may tell of.
    pub from: Position,
    /// The first one that it does not tell of: the cut's position.
    pub to: Position,
    /// The log's epoch when it was made.
    pub epoch: u64,
    /// How many bytes of pieces there are.
    pub bytes: u64,
    /// How many rows.
    pub rows: u64,
    /// When it was made, by the wall clock.
    pub time_ms: u64,
}

impl Header {
    /// The number in the file's name: events are named by where they begin, cuts by their number.
    #[must_use]
    pub const fn name_number(&self) -> u64 {
        match self.kind {
            Kind::Events => self.from.0,
            Kind::Cut => self.number,
        }
    }

    /// The file's name.
    #[must_use]
    pub fn file_name(&self) -> String {
        name(self.kind, self.name_number())
    }

    /// What the file takes on disk.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        HEADER_BYTES.saturating_add(self.bytes)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.kind as u32).to_le_bytes());
        bytes.extend_from_slice(&self.store_id);
        for number in [
            self.number,
            self.from.0,
            self.to.0,
            self.epoch,
            self.bytes,
            self.rows,
            self.time_ms,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        debug_assert_eq!(bytes.len(), HEADER_USED);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let used = bytes.get(..HEADER_USED)?;
        let crc = u32::from_le_bytes(bytes.get(HEADER_USED..HEADER_USED + 4)?.try_into().ok()?);
        if crc32c::crc32c(used) != crc || used.get(..8)? != MAGIC {
            return None;
        }
        let word = |at: usize| Some(u32::from_le_bytes(used.get(at..at + 4)?.try_into().ok()?));
        let number = |at: usize| Some(u64::from_le_bytes(used.get(at..at + 8)?.try_into().ok()?));
        if word(8)? != VERSION {
            return None;
        }
        Some(Self {
            kind: match word(12)? {
                1 => Kind::Events,
                2 => Kind::Cut,
                _ => return None,
            },
            store_id: used.get(16..32)?.try_into().ok()?,
            number: number(32)?,
            from: Position(number(40)?),
            to: Position(number(48)?),
            epoch: number(56)?,
            bytes: number(64)?,
            rows: number(72)?,
            time_ms: number(80)?,
        })
    }
}

/// The name of a file of this kind.
#[must_use]
pub fn name(kind: Kind, number: u64) -> String {
    format!("{number:016x}.{}", kind.suffix())
}

/// What a name is the name of.
#[must_use]
pub fn parse_name(name: &str) -> Option<(Kind, u64)> {
    let (number, suffix) = name.split_once('.')?;
    let kind = [Kind::Events, Kind::Cut]
        .into_iter()
        .find(|kind| kind.suffix() == suffix)?;
    let is_ours = number.len() == 16
        && number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let number = u64::from_str_radix(number, 16).ok().filter(|_| is_ours)?;
    Some((kind, number))
}

/// A file while it is written.
pub struct Writer {
    file: Arc<dyn DiskFile>,
    name: String,
    bytes: u64,
    rows: u64,
}

impl Writer {
    /// Begins a file, or begins it anew.
    ///
    /// # Errors
    /// The disk's.
    pub fn create(disk: &dyn Disk, kind: Kind, number: u64) -> Result<Self, DiskError> {
        let name = name(kind, number);
        let file = disk.open(&name, OpenFile::Fresh)?;
        Ok(Self {
            file,
            name,
            bytes: 0,
            rows: 0,
        })
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The disk's.
    pub fn add(&mut self, table: u8, rows: u32, stream: &[u8]) -> Result<(), DiskError> {
        let mut fixed = [0; PIECE_BYTES];
        fixed[4] = table;
        fixed[8..12].copy_from_slice(&rows.to_le_bytes());
        fixed[12..16].copy_from_slice(&u32::try_from(stream.len()).unwrap_or(u32::MAX).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&fixed[4..]), stream);
        fixed[..4].copy_from_slice(&crc.to_le_bytes());
        self.write(
            HEADER_BYTES + self.bytes,
            &mut [IoSlice::new(&fixed), IoSlice::new(stream)],
        )?;
        self.bytes += (fixed.len() + stream.len()) as u64;
        self.rows += u64::from(rows);
        Ok(())
    }

    /// Makes it a whole file, durable with its name. `header`: its bytes and rows are filled in.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(self, disk: &dyn Disk, header: Header) -> Result<Header, DiskError> {
        let header = Header {
            bytes: self.bytes,
            rows: self.rows,
            ..header
        };
        // All pieces are durable before the block says that they are there.
        self.sync()?;
        self.write(0, &mut [IoSlice::new(&header.encode())])?;
        self.sync()?;
        disk.sync_directory()?;
        Ok(header)
    }

    fn write(&self, offset: u64, parts: &mut [IoSlice<'_>]) -> Result<(), DiskError> {
        write_all(self.file.as_ref(), offset, parts).map_err(|error| DiskError::new("write", &self.name, error))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file
            .sync_data()
            .map_err(|error| DiskError::new("sync", &self.name, error))
    }
}

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    /// The disk's.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// What is there is not what was written.
    #[error("{file}: what begins at byte {offset} does not verify")]
    Damaged {
        /// The file's name.
        file: String,
        /// Where.
        offset: u64,
    },
}

/// Rows of one table, as they were written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which table.
    pub table: u8,
    /// How many rows.
    pub rows: u32,
    /// An Arrow IPC stream with one batch.
    pub stream: Vec<u8>,
}

/// Syncs a file that was found whole: the process that wrote it may have ended before it had.
///
/// # Errors
/// The disk's.
pub fn make_durable(disk: &dyn Disk, header: &Header) -> Result<(), DiskError> {
    let name = header.file_name();
    let file = disk.open(&name, OpenFile::Existing)?;
    file.sync_data().map_err(|error| DiskError::new("sync", &name, error))?;
    disk.sync_directory()
}

/// A whole file, read piece by piece.
pub struct Reader {
    file: Arc<dyn DiskFile>,
    name: String,
    /// What it says of itself.
    pub header: Header,
    at: u64,
}

impl Reader {
    /// Opens a file; `None`: it is not whole, or not of this store.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: &dyn Disk, kind: Kind, number: u64, store_id: [u8; 16]) -> Result<Option<Self>, DiskError> {
        let name = name(kind, number);
        let file = disk.open(&name, OpenFile::ReadOnly)?;
        let wrap = |error| DiskError::new("read", &name, error);
        let mut block = vec![0; HEADER_BYTES as usize];
        let filled = read_full(file.as_ref(), 0, &mut block).map_err(wrap)?;
        let length = file.length().map_err(wrap)?;
        let header = Header::decode(&block[..filled]).filter(|header| {
            let is_it = (header.kind, header.name_number(), header.store_id) == (kind, number, store_id);
            is_it && header.from <= header.to && header.file_bytes() <= length
        });
        Ok(header.map(|header| Self {
            file,
            name,
            header,
            at: 0,
        }))
    }

    /// Opens the very file that says this of itself; `None`: it is not there any more, or another is in its place.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(disk: &dyn Disk, header: &Header) -> Result<Option<Self>, DiskError> {
        match Self::open(disk, header.kind, header.name_number(), header.store_id) {
            Ok(reader) => Ok(reader.filter(|reader| reader.header == *header)),
            Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the next piece begins, in bytes of pieces.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The disk's, or it does not verify.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, PieceError> {
        if self.at >= self.header.bytes {
            return Ok(None);
        }
        let offset = HEADER_BYTES + self.at;
        let mut fixed = [0; PIECE_BYTES];
        if self.read(offset, &mut fixed)? < PIECE_BYTES {
            return Err(self.damaged(offset));
        }
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let (crc, rows, length) = (word(0), word(8), word(12) as usize);
        let end = self.at + (PIECE_BYTES + length) as u64;
        if length > PIECE_BYTES_MAX || end > self.header.bytes {
            return Err(self.damaged(offset));
        }
        let mut stream = vec![0; length];
        let filled = self.read(offset + PIECE_BYTES as u64, &mut stream)?;
        if filled < length || crc32c::crc32c_append(crc32c::crc32c(&fixed[4..]), &stream) != crc {
            return Err(self.damaged(offset));
        }
        self.at = end;
        let table = fixed[4];
        Ok(Some(Piece { table, rows, stream }))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, PieceError> {
        let read = read_full(self.file.as_ref(), offset, buffer);
        Ok(read.map_err(|error| DiskError::new("read", &self.name, error))?)
    }

    fn damaged(&self, offset: u64) -> PieceError {
        PieceError::Damaged {
            file: self.name.clone(),
            offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    fn header() -> Header {
        Header {
            kind: Kind::Events,
            store_id: [7; 16],
            number: 0,
            from: Position(4096),
            to: Position(9000),
            epoch: 3,
            bytes: 0,
            rows: 0,
            time_ms: 5,
        }
    }

    fn written(disk: &SimDisk) -> Header {
        let mut writer = Writer::create(disk, Kind::Events, 4096).unwrap();
        writer.add(1, 2, b"first").unwrap();
        writer.add(2, 1, b"").unwrap();
        writer.finish(disk, header()).unwrap()
    }

    fn read(disk: &SimDisk) -> Result<Option<Vec<Piece>>, PieceError> {
        let Some(mut reader) = Reader::open(disk, Kind::Events, 4096, [7; 16])? else {
            return Ok(None);
        };
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next_piece()? {
            pieces.push(piece);
        }
        Ok(Some(pieces))
    }

    #[test]
    fn pieces_come_back_as_they_were_written() {
        let disk = SimDisk::new(1);
        let header = written(&disk);
        assert_eq!(
            (header.rows, header.file_name().as_str()),
            (3, "0000000000001000.events")
        );
        let found: Vec<_> = read(&disk).unwrap().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|piece| (piece.table, piece.rows, &piece.stream[..]))
            .collect();
        assert_eq!(found, [(1, 2, &b"first"[..]), (2, 1, &b""[..])]);
        assert!(
            Reader::open(&disk, Kind::Events, 4096, [8; 16]).unwrap().is_none(),
            "of another store"
        );
    }

    #[test]
    fn a_file_without_its_block_is_none() {
        let disk = SimDisk::new(1);
        Writer::create(&disk, Kind::Events, 4096)
            .unwrap()
            .add(1, 1, b"x")
            .unwrap();
        assert_eq!(read(&disk).unwrap(), None);
    }

    #[test]
    fn any_flipped_bit_shows() {
        let disk = SimDisk::new(1);
        let header = written(&disk);
        let file = disk.open(&header.file_name(), OpenFile::Existing).unwrap();
        for at in (0..HEADER_USED as u64 + 4).chain(HEADER_BYTES..header.file_bytes()) {
            let mut byte = [0];
            read_full(file.as_ref(), at, &mut byte).unwrap();
            // Three bytes of a piece are always zero, and covered as well.
            for bit in 0..8 {
                write_all(file.as_ref(), at, &mut [IoSlice::new(&[byte[0] ^ 1 << bit])]).unwrap();
                assert!(!matches!(read(&disk), Ok(Some(_))), "bit {bit} of byte {at}");
            }
            write_all(file.as_ref(), at, &mut [IoSlice::new(&byte)]).unwrap();
        }
        assert!(matches!(read(&disk), Ok(Some(_))));
    }

    #[test]
    fn names_are_ours_or_not() {
        for (kind, number) in [(Kind::Events, 4096), (Kind::Cut, 7)] {
            assert_eq!(parse_name(&name(kind, number)), Some((kind, number)));
        }
        for strange in [
            "manifest-0",
            "0000000000001000.segment",
            "1000.events",
            "000000000000100G.cut",
            "0000000000001000.cut.cut",
        ] {
            assert_eq!(parse_name(strange), None, "{strange}");
        }
    }
}
