//! Where results go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fv_device::reference::storage;
use fv_spec::program::Element;
use fv_spec::program::kernel::Output;

/// A matrix that leaves, rows without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// How its numbers are stored.
    pub element: Element,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Values {
    /// As numbers.
    pub fn numbers(&self) -> Vec<f64> {
        let mut numbers = Vec::new();
        storage::decode(self.element, &self.bytes, &mut numbers);
        numbers
    }
}

/// Where results go.
pub trait Outputs {
    /// A result; `which` is the frame at which a piece of video begins.
    fn take(&mut self, what: Output, which: u32, values: &Values) -> io::Result<()>;
}

/// Keeps everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// By what and which.
    pub values: BTreeMap<(Output, u32), Values>,
}

impl Outputs for Kept {
    fn take(&mut self, what: Output, which: u32, values: &Values) -> io::Result<()> {
        self.values.insert((what, which), values.clone());
        Ok(())
    }
}

/// Extents of a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clip {
    /// Pixel rows.
    pub height: u32,
    /// Pixel columns.
    pub width: u32,
    /// Frames per second.
    pub rate: u32,
}

/// Writes video as raw bytes (`video.rgb`: frame by frame, row by row, red, green, blue), as YUV4MPEG2 with full colour
/// resolution (`video.y4m`), and each frame as a PNG (`frame-0000.png`).
pub struct Files {
    folder: PathBuf,
    clip: Clip,
    raw: BufWriter<File>,
    video: y4m::Encoder<File>,
    frames: u32,
}

impl Files {
    /// Files in a folder, which is there already.
    pub fn create(folder: &Path, clip: Clip) -> io::Result<Self> {
        let file = |name: &str| File::create(folder.join(name));
        let rate = y4m::Ratio::new(clip.rate as usize, 1);
        let video = y4m::encode(clip.width as usize, clip.height as usize, rate).with_colorspace(y4m::Colorspace::C444);
        let video = video.write_header(file("video.y4m")?).map_err(io::Error::other)?;
        Ok(Self { folder: folder.to_owned(), clip, raw: BufWriter::new(file("video.rgb")?), video, frames: 0 })
    }

    /// Writes what is still on its way. Returns how many frames there are.
    pub fn finish(mut self) -> io::Result<u32> {
        self.raw.flush()?;
        Ok(self.frames)
    }

    fn frame(&mut self, pixels: &[u8]) -> io::Result<()> {
        self.raw.write_all(pixels)?;
        let planes = planes(pixels);
        self.video.write_frame(&y4m::Frame::new([&planes[0], &planes[1], &planes[2]], None)).map_err(io::Error::other)?;
        let file = File::create(self.folder.join(format!("frame-{:04}.png", self.frames)))?;
        let mut image = png::Encoder::new(BufWriter::new(file), self.clip.width, self.clip.height);
        image.set_color(png::ColorType::Rgb);
        image.write_header()?.write_image_data(pixels)?;
        self.frames += 1;
        Ok(())
    }
}

impl Outputs for Files {
    fn take(&mut self, what: Output, which: u32, values: &Values) -> io::Result<()> {
        if what != Output::Video {
            return Ok(());
        }
        if which != self.frames {
            return Err(io::Error::other(format!("frame {which} comes where frame {} should", self.frames)));
        }
        let bytes = if values.element == Element::U8 { values.bytes.clone() } else { as_bytes(&values.numbers()) };
        let frame = self.clip.height as usize * self.clip.width as usize * 3;
        if bytes.is_empty() || bytes.len() % frame != 0 {
            return Err(io::Error::other(format!("{} bytes of video are no frames of {frame}", bytes.len())));
        }
        bytes.chunks_exact(frame).try_for_each(|pixels| self.frame(pixels))
    }
}

/// Numbers between -1 and 1 as bytes.
fn as_bytes(numbers: &[f64]) -> Vec<u8> {
    let scaled: Vec<f64> = numbers.iter().map(|number| (number + 1.0) * 127.5).collect();
    let mut bytes = Vec::new();
    storage::encode(Element::U8, &scaled, &mut bytes);
    bytes
}

/// Luma and the two colour differences of BT.601 in their limited range, which is what players take YUV4MPEG2 for.
fn planes(pixels: &[u8]) -> [Vec<u8>; 3] {
    const RED: [f64; 3] = [65.481, -37.797, 112.0];
    const GREEN: [f64; 3] = [128.553, -74.203, -93.786];
    const BLUE: [f64; 3] = [24.966, 112.0, -18.214];
    let plane = |at: usize, zero: f64| {
        let value = |p: &[u8]| zero + (RED[at] * f64::from(p[0]) + GREEN[at] * f64::from(p[1]) + BLUE[at] * f64::from(p[2])) / 255.0;
        let values: Vec<f64> = pixels.chunks_exact(3).map(value).collect();
        let mut bytes = Vec::new();
        storage::encode(Element::U8, &values, &mut bytes);
        bytes
    };
    [plane(0, 16.0), plane(1, 128.0), plane(2, 128.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_has_no_colour_and_primaries_have_theirs() {
        let [luma, blue, red] = planes(&[0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 255]);
        assert_eq!((luma, blue, red), (vec![16, 235, 81, 41], vec![128, 128, 90, 240], vec![128, 128, 240, 110]));
    }

    #[test]
    fn a_clip_is_written_as_raw_video_and_as_pictures() {
        let folder = tempfile::tempdir().expect("a folder");
        let clip = Clip { height: 1, width: 2, rate: 16 };
        let mut files = Files::create(folder.path(), clip).expect("files are created");
        let values = |element, bytes: Vec<u8>| Values { element, rows: 2, columns: 3, bytes };
        files.take(Output::Video, 0, &values(Element::U8, vec![1, 2, 3, 4, 5, 6])).expect("bytes");
        let numbers = [-1.0_f64, 0.0, 1.0, 1.0, 1.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        files.take(Output::Video, 1, &values(Element::F64, numbers)).expect("numbers");
        let error = files.take(Output::Video, 5, &values(Element::U8, vec![0; 6])).expect_err("it is out of order");
        assert_eq!(error.to_string(), "frame 5 comes where frame 2 should");
        assert_eq!(files.finish().expect("it is written"), 2);

        let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it was written");
        assert_eq!(read("video.rgb"), [1, 2, 3, 4, 5, 6, 0, 128, 255, 255, 255, 255]);
        assert!(read("video.y4m").starts_with(b"YUV4MPEG2 W2 H1 F16:1 C444"));
        let mut picture = png::Decoder::new(io::Cursor::new(read("frame-0001.png"))).read_info().expect("a picture");
        let mut pixels = vec![0; 6];
        picture.next_frame(&mut pixels).expect("its pixels");
        assert_eq!(pixels, [0, 128, 255, 255, 255, 255]);
    }
}
