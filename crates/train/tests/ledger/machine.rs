//! A machine in memory whose power can fail during any operation of its disk.

#![allow(dead_code, reason = "every file of tests uses a part of it")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dpsgd_train::ledger::storage::{Storage, StoredFile};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A disk whose power can fail. What was not synced is kept apart from what was.
#[derive(Clone, Debug, Default)]
pub struct World {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    /// Names given and moved since the directory was synced.
    renamed: Vec<(Option<PathBuf>, PathBuf, usize)>,
    /// The operations until the power fails.
    left: Option<u64>,
    /// The bytes that can still be written.
    room: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    synced: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Append(u8),
    Cut(u64),
}

impl Content {
    fn with(&self, changes: &[Change]) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for change in changes {
            match change {
                Change::Append(byte) => bytes.push(*byte),
                Change::Cut(length) => bytes.truncate(*length as usize),
            }
        }
        bytes
    }
}

/// What is left after the end of a process.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The process was killed and the machine went on: nothing is lost, nothing is synced either.
    Killed,
    /// The power went; everything that was not synced is lost.
    Lost,
    /// The power went; by chance everything had been written.
    Written,
    /// The power went; of what was not synced, some prefix per file and of the names is left.
    Prefix(u64),
    /// The power went; files had grown, but their new bytes were not written.
    Zeros,
}

impl World {
    fn current_names(&self, changes: usize) -> BTreeMap<PathBuf, usize> {
        let mut names = self.names.clone();
        for (from, to, file) in &self.renamed[..changes] {
            if let Some(from) = from {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
        names
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let names = self.current_names(self.renamed.len());
        names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn after(mut self, end: End) -> Self {
        self.left = None;
        let mut random = match end {
            End::Killed => return self,
            End::Prefix(seed) => ChaCha8Rng::seed_from_u64(seed),
            _ => ChaCha8Rng::seed_from_u64(0),
        };
        let mut keep = |most: usize| match end {
            End::Lost => 0,
            End::Prefix(_) => random.random_range(0..=most),
            _ => most,
        };
        self.names = self.current_names(keep(self.renamed.len()));
        self.renamed.clear();
        for file in &mut self.files {
            let mut kept = file.changes[..keep(file.changes.len())].to_vec();
            if let End::Zeros = end {
                for change in &mut kept {
                    if let Change::Append(byte) = change {
                        *byte = 0;
                    }
                }
            }
            *file = Content { synced: file.with(&kept), changes: Vec::new() };
        }
        self
    }
}

/// Several processes may hold one machine.
#[derive(Clone, Debug, Default)]
pub struct Machine(Rc<RefCell<World>>);

impl Machine {
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let mut world = World::default();
        for (i, (name, bytes)) in files.iter().enumerate() {
            world.files.push(Content { synced: bytes.to_vec(), changes: Vec::new() });
            world.names.insert(name.into(), i);
        }
        Self(Rc::new(RefCell::new(world)))
    }

    pub fn boot(world: World, left: Option<u64>) -> Self {
        Self(Rc::new(RefCell::new(World { left, ..world })))
    }

    pub fn after(&self, end: End) -> World {
        self.0.borrow().clone().after(end)
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.read(Path::new(name)).unwrap()
    }

    /// Fails during the given operation from now on, or never.
    pub fn power_fails_after(&self, left: Option<u64>) {
        self.0.borrow_mut().left = left;
    }

    /// How many more bytes can be written; no limit if none is given.
    pub fn has_room_for(&self, bytes: Option<u64>) {
        self.0.borrow_mut().room = bytes;
    }

    /// Does `change` unless the power is gone. At the operation during which it goes, the change is
    /// begun and reported as failed: how much of it is left is decided by [`World::after`].
    fn change(&self, sync: bool, change: impl FnOnce(&mut World) -> io::Result<()>) -> io::Result<()> {
        let world = &mut *self.0.borrow_mut();
        let gone = || Err(io::Error::other("no power"));
        match world.left {
            None => return change(world),
            Some(0) => return gone(),
            Some(left) => world.left = Some(left - 1),
        }
        if world.left == Some(0) {
            if !sync {
                change(world)?;
            }
            return gone();
        }
        change(world)
    }
}

/// A file of a machine, by its number.
#[derive(Debug)]
pub struct OpenFile(Machine, usize);

impl Storage for Machine {
    type File = OpenFile;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let world = self.0.borrow();
        let file = &world.files[world.find(path)?];
        Ok(file.with(&file.changes))
    }

    fn create_new(&self, path: &Path) -> io::Result<OpenFile> {
        if self.0.borrow().find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create(path)
    }

    fn create(&self, path: &Path) -> io::Result<OpenFile> {
        self.change(false, |world| {
            match world.find(path) {
                Ok(file) => world.files[file].changes.push(Change::Cut(0)),
                Err(_) => {
                    world.files.push(Content::default());
                    world.renamed.push((None, path.to_owned(), world.files.len() - 1));
                }
            }
            Ok(())
        })?;
        self.append(path)
    }

    fn append(&self, path: &Path) -> io::Result<OpenFile> {
        let file = self.0.borrow().find(path)?;
        Ok(OpenFile(self.clone(), file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.0.borrow().find(from)?;
        self.change(false, |world| {
            world.renamed.push((Some(from.to_owned()), to.to_owned(), file));
            Ok(())
        })
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.change(true, |world| {
            world.names = world.current_names(world.renamed.len());
            world.renamed.clear();
            Ok(())
        })
    }
}

impl StoredFile for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.change(false, |world| {
            // A full disk takes the beginning and reports an error.
            let fits = world.room.map_or(bytes.len(), |room| bytes.len().min(room as usize));
            world.room = world.room.map(|room| room - fits as u64);
            world.files[self.1].changes.extend(bytes[..fits].iter().map(|&byte| Change::Append(byte)));
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.change(false, |world| {
            world.files[self.1].changes.push(Change::Cut(length));
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.change(true, |world| {
            let file = &mut world.files[self.1];
            *file = Content { synced: file.with(&file.changes), changes: Vec::new() };
            Ok(())
        })
    }
}
