//! The disk operations behind each piece of upkeep, in the order that a crash between any two of them allows.

use super::compaction::write_footer;
use super::disk::{Disk, DiskError, DiskFile, OpenFile};
use super::footer::Footer;
use super::maintenance::Outcome;
use super::manifest::{Entry, Manifest, ManifestFiles};
use super::segment_header::{footer_name, segment_name};
use super::segments::{Segment, SegmentFiles};
use super::watermark::WatermarkFile;

/// Makes a file for a segment: its space and its name are durable when this returns.
pub(crate) fn make_segment(disk: &dyn Disk, name: &str, file_bytes: u32) -> Result<SegmentFiles, DiskError> {
    let file = disk.open(name, OpenFile::Fresh)?;
    let wrap = |error| DiskError::new("allocate", name, error);
    file.allocate(u64::from(file_bytes)).map_err(wrap)?;
    file.sync_data().map_err(wrap)?;
    let both = SegmentFiles::beside(disk, name, file)?;
    disk.sync_directory()?;
    Ok(both)
}

pub(crate) fn prepare(
    disk: &dyn Disk,
    files: &ManifestFiles,
    id: u64,
    file_bytes: u32,
    manifest: Manifest,
) -> Result<Outcome, DiskError> {
    let name = segment_name(id);
    let make = || -> Result<SegmentFiles, DiskError> {
        let both = make_segment(disk, &name, file_bytes)?;
        files.write(&manifest)?;
        Ok(both)
    };
    match make() {
        Ok(both) => Ok(Outcome::Prepared {
            segment: Segment::ahead(id, file_bytes, both, 0),
            manifest,
        }),
        Err(error) => {
            // What could not be reserved whole must not use up what is left. After another error the manifest may list it.
            if error.passes() {
                tolerate(disk.remove(&name))?;
            }
            Err(error)
        }
    }
}

pub(crate) fn fill(id: u64, file: &dyn DiskFile, from: u64, to: u64) -> Result<Outcome, DiskError> {
    file.zero_at(from, to - from)
        .and_then(|()| file.sync_data())
        .map_err(|error| DiskError::new("fill", &segment_name(id), error))?;
    Ok(Outcome::Filled { id, to })
}

pub(crate) fn seal(
    disk: &dyn Disk,
    files: &ManifestFiles,
    watermark: &WatermarkFile,
    footer: &Footer,
    entry: Entry,
    mut manifest: Manifest,
) -> Result<(u32, Manifest), DiskError> {
    let footer_crc = write_footer(disk, footer)?;
    disk.sync_directory()?;
    watermark.sync()?;
    if let Some(listed) = manifest.entries.iter_mut().find(|listed| listed.id == entry.id) {
        *listed = Entry { footer_crc, ..entry };
    }
    files.write(&manifest)?;
    Ok((footer_crc, manifest))
}

/// The manifest without the segment comes first; only then does its file go, or become the file of another number. From then
/// on it is retired, whatever the system lacks for the rest: what is left over goes at the next open.
pub(crate) fn retire(
    disk: &dyn Disk,
    files: &ManifestFiles,
    id: u64,
    recycled: Option<(u64, u32)>,
    manifest: Manifest,
) -> Result<(Option<Segment>, Manifest), DiskError> {
    // Opened first: without descriptors it goes instead.
    let open = |(new, bytes): (u64, u32)| match SegmentFiles::open(disk, &segment_name(id)) {
        Ok(both) => Ok(Some((new, bytes, both))),
        Err(error) if error.passes() => Ok(None),
        Err(error) => Err(error),
    };
    let recycled = recycled.map(open).transpose()?.flatten();
    files.write(&manifest)?;
    let Some((new, file_bytes, both)) = recycled else {
        tolerate(remove_files(disk, id))?;
        return Ok((None, manifest));
    };
    let rename = || -> Result<(), DiskError> {
        disk.remove(&footer_name(id))?;
        disk.rename(&segment_name(id), &segment_name(new))?;
        disk.sync_directory()
    };
    if !tolerate(rename())? {
        return Ok((None, manifest));
    }
    let mut listed = Manifest {
        version: manifest.version + 1,
        ..manifest.clone()
    };
    listed.entries.push(Entry {
        id: new,
        file_bytes,
        ..Entry::default()
    });
    if !tolerate(files.write(&listed))? {
        return Ok((None, manifest));
    }
    let segment = Segment::ahead(new, file_bytes, both, u64::from(file_bytes));
    Ok((Some(segment), listed))
}

/// Whether it was done: not if the system lacked something. Other errors stay errors.
pub(crate) fn tolerate(result: Result<(), DiskError>) -> Result<bool, DiskError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.passes() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn remove_files(disk: &dyn Disk, id: u64) -> Result<(), DiskError> {
    disk.remove(&segment_name(id))?;
    disk.remove(&footer_name(id))?;
    disk.sync_directory()
}
