//! Folders of photographs: one subfolder for each class, PNG or JPEG inside.
//!
//! ```text
//! photos/cat/0001.jpg
//! photos/dog/0001.png
//! ```
//!
//! The classes and the size are [`Declared`]: a subfolder is a class only if it is in the list. Each image is
//! turned as its camera says, converted to grey or colour and stretched to the size, on its own, so that data
//! sets that differ in one file differ in one sample. No image is skipped: N does not depend on what they
//! show.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageReader, Limits};

use crate::dataset::{Dataset, Inputs, Targets};
use crate::declared::{Declared, ImageSize};
use crate::error::{DataError, setting};
use crate::raw;

/// The endings of images that are read.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Files that operating systems leave in folders.
const LITTER: [&str; 2] = ["thumbs.db", "desktop.ini"];

/// The memory that one image may take while it is decoded.
const MOST_MEMORY: u64 = 1 << 28;

/// The images of a folder: names for people, and what they show.
#[derive(Clone, Debug)]
pub struct Images {
    /// The path of each image below the folder.
    pub names: Vec<String>,
    /// The images, in the order of their names.
    pub dataset: Dataset,
}

/// Reads a folder with a subfolder for each class.
pub fn load(folder: &Path, declared: &Declared) -> Result<Images, DataError> {
    let size = checked_size(declared)?;
    let subfolders: Vec<PathBuf> = listed(folder)?.into_iter().filter(|path| path.is_dir()).collect();
    let names: Vec<String> = subfolders.iter().map(|path| name(path)).collect();
    let classes = declared.class_count(&folder.display().to_string(), &names.join(","))?;
    let mut files = Vec::new();
    let mut labels = Vec::new();
    for (subfolder, name) in subfolders.iter().zip(&names) {
        let Some(class) = declared.classes.iter().position(|class| class == name) else {
            return Err(DataError::Content {
                path: folder.to_path_buf(),
                why: format!(
                    "the subfolder {name:?} is not among the declared classes {}; declare it or move it away",
                    declared.classes.join(", ")
                ),
            });
        };
        let before = files.len();
        files.extend(images(subfolder)?);
        labels.resize(labels.len() + files.len() - before, class as u32);
    }
    read(folder, &files, Targets::Classes { labels, classes }, size)
}

/// Reads the images of a folder, whether or not they are in subfolders, or a single image. The targets of the
/// result mean nothing.
pub fn load_inputs(path: &Path, declared: &Declared) -> Result<Images, DataError> {
    let size = checked_size(declared)?;
    let classes = declared.class_count("the run", "their names")?;
    let mut files = Vec::new();
    if path.is_dir() {
        for subfolder in listed(path)?.into_iter().filter(|path| path.is_dir()) {
            files.extend(images(&subfolder)?);
        }
        files.extend(images(path)?);
        files.sort();
    } else {
        files.push(path.to_path_buf());
    }
    let labels = vec![0; files.len()];
    read(path, &files, Targets::Classes { labels, classes }, size)
}

fn checked_size(declared: &Declared) -> Result<ImageSize, DataError> {
    match declared.size {
        Some(size) => Ok(size),
        None => setting(
            "image-size",
            "none",
            "HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, as in --image-size 32x32",
            "every image of the folder is brought to this public size",
        ),
    }
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What is in a folder, in the order of names, without hidden files.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |source| DataError::Io { path: folder.to_path_buf(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = name(&path);
        if !name.starts_with('.') && !LITTER.contains(&name.to_lowercase().as_str()) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The images directly inside a folder; any other file is refused, never skipped.
fn images(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let files: Vec<PathBuf> = listed(folder)?.into_iter().filter(|path| path.is_file()).collect();
    let is_image = |path: &Path| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
    };
    match files.iter().find(|path| !is_image(path)) {
        Some(other) => Err(DataError::Content {
            path: other.clone(),
            why: "neither .png nor .jpg; convert it or move it away: no file is skipped silently".to_string(),
        }),
        None => Ok(files),
    }
}

fn read(folder: &Path, files: &[PathBuf], targets: Targets, size: ImageSize) -> Result<Images, DataError> {
    if files.is_empty() {
        return Err(DataError::Content {
            path: folder.to_path_buf(),
            why: "no images; expected FOLDER/CLASS/NAME.png or .jpg".to_string(),
        });
    }
    let one = |path: &PathBuf| decode(path, &raw::read(path, MOST_MEMORY)?, size);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = files.len().div_ceil(threads);
    let decoded: Vec<Result<Vec<u8>, DataError>> = std::thread::scope(|scope| {
        let all = |files: &[PathBuf]| -> Result<Vec<u8>, DataError> {
            let mut pixels = Vec::new();
            for path in files {
                pixels.extend(one(path)?);
            }
            Ok(pixels)
        };
        let workers: Vec<_> = files.chunks(part).map(|files| scope.spawn(move || all(files))).collect();
        let stopped = |_| {
            let why = "a decoder of images stopped unexpectedly".to_string();
            Err(DataError::Content { path: folder.to_path_buf(), why })
        };
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(stopped)).collect()
    });
    let mut pixels = Vec::new();
    for part in decoded {
        pixels.extend(part?);
    }
    let shape = [size.height, size.width, size.channels];
    let dataset = Dataset::new(Inputs::Bytes(pixels), targets, shape)?;
    let below = |path: &PathBuf| match path.strip_prefix(folder) {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.display().to_string(),
        _ => name(path),
    };
    Ok(Images { names: files.iter().map(below).collect(), dataset })
}

/// The pixels of one image, height, width, channel, at the declared size; `path` is named in errors.
pub fn decode(path: &Path, bytes: &[u8], size: ImageSize) -> Result<Vec<u8>, DataError> {
    let damaged = |error: &dyn std::fmt::Display| DataError::Content {
        path: path.to_path_buf(),
        why: format!("not a whole PNG or JPEG image: {}", first_line(&error.to_string())),
    };
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let mut reader = reader.map_err(|error| damaged(&error))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| damaged(&error))?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MOST_MEMORY / 16 {
        return Err(damaged(&format!("{width} by {height} pixels are too many")));
    }
    let turned = decoder.orientation().map_err(|error| damaged(&error))?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| damaged(&error))?;
    image.apply_orientation(turned);
    let (height, width) = (size.height as u32, size.width as u32);
    let grey = size.channels == 1;
    // Converted first, so that transparent pixels do not bleed into their neighbours.
    let image = if grey { image.into_luma8().into() } else { DynamicImage::from(image.into_rgb8()) };
    let same = (image.height(), image.width()) == (height, width);
    let image = if same { image } else { image.resize_exact(width, height, FilterType::Triangle) };
    Ok(image.into_bytes())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
