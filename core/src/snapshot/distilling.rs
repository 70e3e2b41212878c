//! A file of events, made of the heads of one segment, a bounded part at a time so that nobody who waits for a read waits
//! for all of it.

use std::sync::Arc;

use crate::log::disk::Disk;
use crate::log::{Heads, HeadsRequest, Position};
use crate::state::State;

use super::distiller::Distiller;
use super::error::RowsError;
use super::pieces::{Header, Kind, Writer, name};

/// Records that one job tells of; in tests so few that there are several jobs.
const RECORDS_MAX: usize = if cfg!(test) { 64 } else { 32_768 };

/// See the module's documentation.
pub struct Distilling {
    disk: Arc<dyn Disk>,
    header: Header,
    request: Option<HeadsRequest>,
    heads: Option<Heads>,
    distiller: Distiller,
    writer: Option<Writer>,
}

/// What a job led to.
pub enum Distilled {
    /// There is more to do.
    More(Box<Distilling>),
    /// The file is whole and durable.
    Done(Header),
    /// These records cannot be told of, and why.
    Gap {
        /// Where they begin.
        from: Position,
        /// Where they end.
        to: Position,
        /// Why.
        why: String,
        /// A half-made file may be left.
        is_left: bool,
    },
    /// The disk lacked something: it is as if nothing had been tried.
    Later,
}

impl Distilling {
    /// Of what `request` asks for.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, request: HeadsRequest, state: &State) -> Self {
        let header = Header {
            kind: Kind::Events,
            store_id: state.store_id(),
            number: 0,
            from: request.from,
            to: request.to,
            epoch: state.epoch(),
            bytes: 0,
            rows: 0,
            time_ms: state.now().wall_ms,
        };
        Self {
            disk,
            header,
            request: Some(request),
            heads: None,
            distiller: Distiller::new(&state.names_secret()),
            writer: None,
        }
    }

    /// What the file is called.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.header.file_name()
    }

    /// Does a part of it.
    #[must_use]
    pub fn run(mut self: Box<Self>) -> Distilled {
        let (disk, from, to) = (self.disk.clone(), self.header.from, self.header.to);
        let error = match self.go_on() {
            Ok(false) => return Distilled::More(self),
            Ok(true) => match self.finish() {
                Ok(header) => return Distilled::Done(header),
                Err(error) => error,
            },
            Err(error) => error,
        };
        // A half-made file is none; without it there is room for others.
        let removed = disk.remove(&name(Kind::Events, from.0));
        match error {
            RowsError::Disk(error) if error.passes() => Distilled::Later,
            error => Distilled::Gap {
                from,
                to,
                why: error.to_string(),
                is_left: removed.is_err(),
            },
        }
    }

    /// Whether all records have been told of.
    fn go_on(&mut self) -> Result<bool, RowsError> {
        if let Some(request) = self.request.take() {
            self.heads = Some(request.run()?);
        }
        if self.writer.is_none() {
            self.writer = Some(Writer::create(self.disk.as_ref(), Kind::Events, self.header.from.0)?);
        }
        for _ in 0..RECORDS_MAX {
            let Some(head) = self.heads.as_mut().and_then(Heads::next_head) else {
                return Ok(true);
            };
            self.distiller.add(&head)?;
            if self.distiller.is_full() {
                self.flush()?;
            }
        }
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), RowsError> {
        for (table, rows, stream) in self.distiller.take()? {
            if let Some(writer) = &mut self.writer {
                writer.add(table, rows, &stream)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Header, RowsError> {
        self.flush()?;
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::create(self.disk.as_ref(), Kind::Events, self.header.from.0)?,
        };
        Ok(writer.finish(self.disk.as_ref(), self.header)?)
    }
}
