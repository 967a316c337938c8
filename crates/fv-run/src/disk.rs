//! Space on the file system of a folder, and how fast its files are read. Nothing is ever written.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use fv_spec::probe::{Disk, PageCache, Problem, ReadRate};
use walkdir::WalkDir;

use crate::{believed, files::Files, linux::mountinfo};

/// How long a rate is measured.
pub const MEASURE: Duration = Duration::from_secs(3);
/// How long a file system that does not answer is waited for on top of that.
const PATIENCE: Duration = Duration::from_secs(7);
/// The size of a read.
const BLOCK: usize = 8 << 20;
/// Reads that are under way at once: one alone does not keep a solid-state disk busy.
const READERS: usize = 4;
/// What reading past the page cache must be aligned to, on every disk in use.
const ALIGNMENT: usize = 4096;
/// Smaller files say more about opening than about reading.
const SMALLEST: u64 = 1 << 20;
/// Files that are looked at, so that a huge tree ends.
const MOST_FILES: usize = 20_000;
/// Less than this is over before a disk is up to speed.
const TOO_LITTLE: u64 = 64 << 20;

/// File systems that take the flag for reading past the page cache and have nothing behind it, or do not heed it.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "zfs"];

/// Size of and space on the file system of `folder`.
///
/// # Errors
/// When the system refuses.
pub fn space(folder: &Path, files: &dyn Files) -> io::Result<Disk> {
    let found = fs4::statvfs(folder)?;
    Ok(Disk {
        path: shown(folder, std::env::home_dir().as_deref()),
        filesystem: kind(folder, files),
        total_bytes: believed(found.total_space()).unwrap_or(fv_spec::units::MAX_JSON_INTEGER),
        free_bytes: believed(found.available_space()).unwrap_or(fv_spec::units::MAX_JSON_INTEGER).min(found.total_space()),
        read: None,
    })
}

/// The folder as it was given, but for the home folder, which names its owner.
fn shown(folder: &Path, home: Option<&Path>) -> String {
    let home = home.filter(|home| home.parent().is_some());
    match home.and_then(|home| folder.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => folder.display().to_string(),
    }
}

/// The kind of file system, where the system lists its mounts.
fn kind(folder: &Path, files: &dyn Files) -> Option<String> {
    let mounts = mountinfo::parse(&files.read(mountinfo::PATH).ok()?);
    let folder = folder.canonicalize().ok()?;
    mountinfo::of(&mounts, folder.to_str()?).map(|mount| mount.kind.clone())
}

/// Measures how fast the files of `folder` are read, for `time` at most. Nothing where there is too little to read; the
/// problems say why. `filesystem` is its kind, where that is known.
pub fn read_rate(folder: &Path, filesystem: Option<&str>, time: Duration, problems: &mut Vec<Problem>) -> Option<ReadRate> {
    let files = largest(folder);
    if files.is_empty() {
        let message = format!("the read rate was not measured: {} holds no file of 1 MiB or more", shown_here(folder));
        problems.push(Problem::note("nothing-to-read", message));
        return None;
    }
    let (send, answer) = mpsc::channel();
    // Left behind when a file system does not answer: a read from it does not return then.
    thread::spawn(move || send.send(measure(&files, time)));
    let found = answer.recv_timeout(time + PATIENCE).unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
    match found {
        Ok(mut rate) => {
            if filesystem.is_some_and(|kind| MEMORY.contains(&kind)) {
                rate.page_cache = PageCache::MayServe;
            }
            if rate.read_bytes < TOO_LITTLE {
                let message = format!("the read rate rests on {} MiB only: there is no more to read", rate.read_bytes >> 20);
                problems.push(Problem::warning("little-to-read", message));
            }
            if rate.page_cache != PageCache::Bypassed {
                let message = "the page cache could not be bypassed: what was read may come from memory";
                problems.push(Problem::warning("page-cache", message));
            }
            Some(rate)
        }
        Err(error) => {
            problems.push(Problem::warning("read-rate-unknown", format!("the read rate could not be measured: {error}")));
            None
        }
    }
}

fn shown_here(folder: &Path) -> String {
    shown(folder, std::env::home_dir().as_deref())
}

/// Files worth reading, the largest first, with their sizes. Links lead to where weights are kept.
fn largest(folder: &Path) -> Vec<(PathBuf, u64)> {
    let there = WalkDir::new(folder).follow_links(true).max_depth(8).into_iter().take(MOST_FILES).flatten();
    let sized = there.filter(|entry| entry.file_type().is_file()).filter_map(|entry| {
        let size = entry.metadata().ok()?.len();
        (size >= SMALLEST).then(|| (entry.into_path(), size))
    });
    let mut files: Vec<(PathBuf, u64)> = sized.collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    files
}

/// Blocks of all files in order, each read once by whoever comes first.
struct Work {
    /// File and offset.
    blocks: Vec<(usize, u64)>,
    files: Vec<File>,
    next: AtomicUsize,
    read: AtomicU64,
    failed: AtomicBool,
    until: Instant,
}

fn measure(files: &[(PathBuf, u64)], time: Duration) -> io::Result<ReadRate> {
    // As much as a very fast disk reads in that time.
    const MOST: u64 = 64 << 30;
    let mut opened = Vec::new();
    let mut blocks = Vec::new();
    let mut page_cache = PageCache::Bypassed;
    let mut planned = 0;
    let mut refused = None;
    for (path, size) in files {
        match open(path) {
            Ok((file, cache)) => {
                page_cache = page_cache.max(cache);
                blocks.extend((0..*size).step_by(BLOCK).map(|offset| (opened.len(), offset)));
                opened.push(file);
                planned += size;
            }
            Err(error) => refused = Some(error),
        }
        if planned >= MOST || opened.len() >= 256 {
            break;
        }
    }
    if opened.is_empty() {
        return Err(refused.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound)));
    }
    let start = Instant::now();
    let work = Arc::new(Work {
        blocks,
        files: opened,
        next: AtomicUsize::new(0),
        read: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        until: start + time,
    });
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            thread::spawn({
                let work = Arc::clone(&work);
                move || reader(&work)
            })
        })
        .collect();
    let results: Vec<io::Result<()>> = readers.into_iter().map(|reader| reader.join().unwrap_or(Ok(()))).collect();
    let elapsed = start.elapsed();
    results.into_iter().collect::<io::Result<()>>()?;
    let read_bytes = work.read.load(Ordering::Relaxed);
    let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
    let rate = u128::from(read_bytes) * 1_000_000_000 / u128::from(nanoseconds);
    Ok(ReadRate {
        bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
        read_bytes,
        nanoseconds,
        readers: u32::try_from(READERS).unwrap_or(u32::MAX),
        page_cache,
    })
}

fn reader(work: &Work) -> io::Result<()> {
    let mut space = vec![0_u8; BLOCK + ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    let block = &mut space[start..start + BLOCK];
    while Instant::now() < work.until && !work.failed.load(Ordering::Relaxed) {
        let Some(&(file, offset)) = work.blocks.get(work.next.fetch_add(1, Ordering::Relaxed)) else { break };
        let read = read_at(&work.files[file], block, offset).inspect_err(|_| work.failed.store(true, Ordering::Relaxed))?;
        work.read.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, block: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, block, offset)
}

#[cfg(windows)]
fn read_at(file: &File, block: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, block, offset)
}

/// Opens a file past the page cache, or with the page cache emptied of it.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<(File, PageCache)> {
    use std::os::unix::fs::OpenOptionsExt;

    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    if let Ok(file) = File::options().read(true).custom_flags(direct).open(path)
        && works(&file)
    {
        return Ok((file, PageCache::Bypassed));
    }
    // File systems in memory and some over a network have no other way.
    let file = File::open(path)?;
    let dropped = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok((file, if dropped.is_ok() { PageCache::Dropped } else { PageCache::MayServe }))
}

/// Some file systems refuse only when it comes to reading.
#[cfg(target_os = "linux")]
fn works(file: &File) -> bool {
    let mut space = vec![0_u8; 2 * ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    read_at(file, &mut space[start..start + ALIGNMENT], 0).is_ok()
}

/// Opens a file past the page cache.
#[cfg(target_os = "macos")]
fn open(path: &Path) -> io::Result<(File, PageCache)> {
    let file = File::open(path)?;
    let bypassed = rustix::fs::fcntl_nocache(&file, true);
    // What is in the cache already is still served from there.
    Ok((file, if bypassed.is_ok() { PageCache::Dropped } else { PageCache::MayServe }))
}

/// Opens a file past the page cache.
#[cfg(windows)]
fn open(path: &Path) -> io::Result<(File, PageCache)> {
    use std::os::windows::fs::OpenOptionsExt;

    /// `FILE_FLAG_NO_BUFFERING`.
    const NO_BUFFERING: u32 = 0x2000_0000;
    if let Ok(file) = File::options().read(true).custom_flags(NO_BUFFERING).open(path) {
        return Ok((file, PageCache::Bypassed));
    }
    Ok((File::open(path)?, PageCache::MayServe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_not_named() {
        let home = Path::new("/home/someone");
        for (folder, text) in [
            ("/home/someone", "~"),
            ("/home/someone/weights", "~/weights"),
            ("/home/someone-else", "/home/someone-else"),
            ("weights", "weights"),
        ] {
            assert_eq!(shown(Path::new(folder), Some(home)).replace('\\', "/"), text);
        }
        assert_eq!(shown(Path::new("/weights"), Some(Path::new("/"))).replace('\\', "/"), "/weights");
        assert_eq!(shown(Path::new("/weights"), None).replace('\\', "/"), "/weights");
    }
}
