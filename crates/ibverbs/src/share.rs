//! Contexts that share their objects: `ibv_import_device` makes a second context of the first
//! one's `cmd_fd`, and `ibv_import_pd`, `ibv_import_mr`, `ibv_import_dm` find the objects of either
//! by handle.
//!
//! With a kernel device such a descriptor can be sent to another process. Here the device *is* this
//! process, so that contexts are shared within it only.
//!
//! `ibv_unimport_*` frees the C struct; the object goes when any of the contexts destroys it, and
//! the program sees to it that no other uses it then (ibv_import_pd(3)).

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use feroce_verbs::{DeviceMemory, MemoryRegion, ProtectionDomain};

use crate::guard::Failure;

/// The contexts that were imported from each other, and the first of them.
#[derive(Debug)]
pub(crate) struct Family {
    file: File,
    /// The address of their `ibv_device`: pointers are not `Send`.
    pub(crate) device: usize,
    handles: Mutex<Handles>,
}

/// What identifies an open file, whatever the number of its descriptor: device and inode.
pub(crate) type File = (u64, u64);

/// A region under all its C structs. Empty once it was deregistered under one of them.
pub(crate) type SharedRegion = Arc<Mutex<Option<LiveRegion>>>;

/// A region that is registered.
#[derive(Debug)]
pub(crate) struct LiveRegion {
    pub(crate) region: MemoryRegion,
    /// Bytes.
    pub(crate) length: usize,
}

/// Device memory under all its C structs; regions made of it hold the inner reference.
pub(crate) type SharedMemory = Arc<Arc<DeviceMemory>>;

/// The objects that can be imported, by handle.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    pub(crate) pds: BTreeMap<u32, Weak<ProtectionDomain>>,
    pub(crate) mrs: BTreeMap<u32, Weak<Mutex<Option<LiveRegion>>>>,
    pub(crate) dms: BTreeMap<u32, Weak<Arc<DeviceMemory>>>,
}

static FAMILIES: Mutex<Vec<Weak<Family>>> = Mutex::new(Vec::new());

/// Access to the families there are.
pub(crate) type FamiliesGuard = MutexGuard<'static, Vec<Weak<Family>>>;

/// Waits for access to the families there are.
pub(crate) fn families() -> FamiliesGuard {
    FAMILIES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Family {
    /// A family of one context, and the descriptor that leads to it.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn found(device: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        // SAFETY: the name is a C string; the result is checked.
        let raw = unsafe { libc::memfd_create(c"feroce-context".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened and belongs to nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let family = Arc::new(Self {
            file: identify(descriptor.as_raw_fd())?,
            device,
            handles: Mutex::default(),
        });
        let mut families = families();
        families.retain(|family| family.strong_count() > 0);
        families.push(Arc::downgrade(&family));
        Ok((family, descriptor))
    }

    /// The family that a descriptor leads to.
    pub(crate) fn find(descriptor: c_int) -> Result<Arc<Self>, Failure> {
        let file = identify(descriptor)
            .map_err(|_| Failure::new(libc::EBADF, format!("cmd_fd {descriptor} is not open")))?;
        let found = families()
            .iter()
            .filter_map(Weak::upgrade)
            .find(|family| family.file == file);
        found.ok_or_else(|| {
            Failure::unsupported(format!(
                "cmd_fd {descriptor} is that of no open context of this process; objects can be \
                 shared within a process only"
            ))
        })
    }

    /// The objects that can be imported.
    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds an object to import.
pub(crate) fn import<T>(
    objects: &BTreeMap<u32, Weak<T>>,
    handle: u32,
    what: &str,
) -> Result<Arc<T>, Failure> {
    objects.get(&handle).and_then(Weak::upgrade).ok_or_else(|| {
        Failure::new(
            libc::ENOENT,
            format!("{what} {handle:#x} does not exist on the contexts that share this cmd_fd"),
        )
    })
}

/// What an open descriptor leads to.
pub(crate) fn identify(descriptor: c_int) -> io::Result<File> {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat refuses descriptors that are not open, and fills the whole struct otherwise.
    let data = unsafe {
        if libc::fstat(descriptor, data.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        data.assume_init()
    };
    Ok((data.st_dev, data.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_of_the_descriptor_leads_to_the_family() {
        let (family, descriptor) = Family::found(1).unwrap();
        let (other, _kept) = Family::found(2).unwrap();
        let duplicate = descriptor.try_clone().unwrap();
        drop(descriptor);
        let found = Family::find(duplicate.as_raw_fd()).unwrap();
        assert!(Arc::ptr_eq(&found, &family) && !Arc::ptr_eq(&found, &other));
    }

    #[test]
    fn descriptors_that_lead_nowhere_say_so() {
        let errno = |descriptor| Family::find(descriptor).unwrap_err().errno;
        assert_eq!(errno(-1), libc::EBADF);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(errno(file.as_raw_fd()), libc::EOPNOTSUPP);
        let (family, descriptor) = Family::found(1).unwrap();
        drop(family);
        assert_eq!(errno(descriptor.as_raw_fd()), libc::EOPNOTSUPP);
    }

    #[test]
    fn what_is_destroyed_cannot_be_imported() {
        let object = Arc::new(7);
        let objects = BTreeMap::from([(3, Arc::downgrade(&object))]);
        assert_eq!(import(&objects, 3, "number").as_deref(), Ok(&7));
        drop(object);
        assert_eq!(
            import(&objects, 3, "number").unwrap_err().errno,
            libc::ENOENT
        );
        assert_eq!(
            import(&objects, 4, "number").unwrap_err().errno,
            libc::ENOENT
        );
    }
}
