//! Memory regions. Not here: windows ([`crate::mw`]), device memory itself ([`crate::dm`]).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feroce_verbs::{Access, DeviceMemory, LocalFault, Memory, PrefetchError, RegisterError};
use feroce_verbs_abi as abi;

use crate::convert::wr;
use crate::guard::{self, Failure, refused};
use crate::share::{self, LiveRegion, SharedRegion};
use crate::{context, dm, handle, pd};

/// The Rust part of an `ibv_mr`.
#[derive(Debug)]
struct MrState {
    region: SharedRegion,
}

fn lock(region: &SharedRegion) -> MutexGuard<'_, Option<LiveRegion>> {
    region.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> Failure {
    Failure::invalid("the region was deregistered on a context that shares it")
}

/// Registers the program's memory.
fn register(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut abi::ibv_mr, Failure> {
    let access = access_flags(access)?;
    let memory = if addr.is_null() && length == usize::MAX && access.contains(Access::ON_DEMAND) {
        // SAFETY: the program asks for its whole address space to be reachable.
        unsafe { Memory::address_space() }
    } else {
        // SAFETY: every caller's contract: the memory stays mapped until `ibv_dereg_mr`.
        unsafe { Memory::from_raw(addr.cast(), length) }
    };
    enroll(pd, addr, length, memory, iova, access)
}

/// Registers memory of any kind and makes the C object.
fn enroll(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    memory: Memory,
    iova: u64,
    access: Access,
) -> Result<*mut abi::ibv_mr, Failure> {
    // SAFETY: every caller's contract: `pd` is null or live; then its context is open.
    let (domain, context, family) = unsafe {
        let domain = &pd::state(pd)?.pd;
        (
            domain,
            (*pd).context,
            &context::state((*pd).context)?.family,
        )
    };
    let region = domain
        .register(memory, iova, access)
        .map_err(|error| Failure::new(register_errno(&error), error.to_string()))?;
    let c = abi::ibv_mr {
        context,
        pd,
        addr,
        length,
        // What stays the same when the region gets another key, and no other region has.
        handle: region.lkey() >> 8,
        lkey: region.lkey(),
        rkey: region.rkey(),
    };
    let region = Arc::new(Mutex::new(Some(LiveRegion { region, length })));
    family
        .handles()
        .mrs
        .insert(c.handle, Arc::downgrade(&region));
    Ok(handle::create(c, MrState { region }))
}

/// Access flags; undefined bits and impossible combinations are refused.
pub(crate) fn access_flags(access: u32) -> Result<Access, Failure> {
    Access::from_bits(access).map_err(|error| Failure::invalid(error.to_string()))
}

/// The errno of a refused registration.
pub(crate) const fn register_errno(error: &RegisterError) -> c_int {
    match error {
        RegisterError::NotMapped { .. } | RegisterError::NotWritable { .. } => libc::EFAULT,
        RegisterError::TableFull { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// # Safety
/// `pd` is null or live; `addr..addr + length` stays mapped until `ibv_dereg_mr`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_reg_mr", || {
        register(pd, addr, length, addr as u64, access.cast_unsigned())
    })
}

/// # Safety
/// As for [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_reg_mr_iova", || {
        register(pd, addr, length, iova, access.cast_unsigned())
    })
}

/// # Safety
/// As for [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_reg_mr_iova2", || {
        register(pd, addr, length, iova, access)
    })
}

/// # Safety
/// `mr` and `pd` are null or live; new memory stays mapped until `ibv_dereg_mr`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut abi::ibv_mr,
    flags: c_int,
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // A mistake is -1 with errno, a failed change a positive code (ibv_rereg_mr(3)).
    let what = flags.cast_unsigned();
    guard::minus_one("ibv_rereg_mr", || {
        if what == 0 || what & !abi::IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
            return Err(Failure::invalid(format!("flags {what:#x} name no change")));
        }
        if what & abi::IBV_REREG_MR_CHANGE_TRANSLATION != 0 && (addr.is_null() || length == 0) {
            return Err(Failure::invalid(
                "a new translation needs an address and a length",
            ));
        }
        // SAFETY: the caller's contract.
        let state = unsafe { handle::rust::<_, MrState>(mr) }?;
        let domain = if what & abi::IBV_REREG_MR_CHANGE_PD == 0 {
            None
        } else {
            // SAFETY: the caller's contract.
            Some(&unsafe { pd::state(pd) }?.pd)
        };
        let rights = if what & abi::IBV_REREG_MR_CHANGE_ACCESS == 0 {
            None
        } else {
            Some(access_flags(access.cast_unsigned())?)
        };
        let translation = if what & abi::IBV_REREG_MR_CHANGE_TRANSLATION == 0 {
            None
        } else {
            // SAFETY: the caller's contract.
            Some((
                unsafe { Memory::from_raw(addr.cast(), length) },
                addr as u64,
            ))
        };
        let moved = translation.is_some();
        let mut guarded = lock(&state.region);
        let live = guarded.as_mut().ok_or_else(gone)?;
        let region = &mut live.region;
        region
            .reregister(domain.map(Arc::as_ref), translation, rights)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        // SAFETY: the caller's contract: the C struct is live.
        unsafe {
            (*mr).lkey = region.lkey();
            (*mr).rkey = region.rkey();
            if domain.is_some() {
                (*mr).pd = pd;
            }
            if moved {
                (*mr).addr = addr;
                (*mr).length = length;
            }
        }
        Ok(0)
    })
}

/// # Safety
/// `mr` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut abi::ibv_mr) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let state = unsafe { handle::rust::<_, MrState>(mr) }?;
        let mut guarded = lock(&state.region);
        let LiveRegion { region, length } = guarded.take().ok_or_else(gone)?;
        if let Err((region, error)) = region.close() {
            *guarded = Some(LiveRegion { region, length });
            return Err(Failure::new(libc::EBUSY, error.to_string()));
        }
        drop(guarded);
        // SAFETY: the caller's contract; a live region's context is open.
        let family = unsafe { &context::state((*mr).context)?.family };
        // SAFETY: the caller's contract.
        family.handles().mrs.remove(&unsafe { (*mr).handle });
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, MrState>(mr) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_dereg_mr", mr, destroy) }
}

/// # Safety
/// `pd` and `mr_init_attr` are null or point to what their types say; memory stays mapped until
/// `ibv_dereg_mr`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut abi::ibv_pd,
    mr_init_attr: *mut abi::ibv_mr_init_attr,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_reg_mr_ex", || {
        // SAFETY: the caller's contract.
        let attr = unsafe { &*guard::not_null(mr_init_attr, "mr_init_attr")? };
        let has = |mask: abi::ibv_mr_init_attr_mask| attr.comp_mask & u64::from(mask) != 0;
        let known = u64::from(abi::IBV_REG_MR_MASK_IOVA | abi::IBV_REG_MR_MASK_ADDR);
        if attr.comp_mask & !known != 0 {
            return Err(Failure::unsupported(format!(
                "comp_mask {:#x}: only memory by address, and its iova, can be registered",
                attr.comp_mask
            )));
        }
        if !has(abi::IBV_REG_MR_MASK_ADDR) {
            return Err(Failure::invalid("comp_mask lacks IBV_REG_MR_MASK_ADDR"));
        }
        let iova = match has(abi::IBV_REG_MR_MASK_IOVA) {
            true => attr.iova,
            false => attr.addr as u64,
        };
        let access = attr.access.cast_unsigned();
        register(pd, attr.addr, attr.length, iova, access)
    })
}

/// Another C struct for a region of a context that shares its objects. Its `addr` is null: the
/// program knows where the memory is, or it is not mapped where this one is used.
///
/// # Safety
/// `pd` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_mr(
    pd: *mut abi::ibv_pd,
    mr_handle: u32,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_import_mr", || {
        // SAFETY: the caller's contract; a live domain has an open context.
        let (context, family) = unsafe {
            pd::state(pd)?;
            ((*pd).context, &context::state((*pd).context)?.family)
        };
        let shared = share::import(&family.handles().mrs, mr_handle, "memory region")?;
        let guarded = lock(&shared);
        let LiveRegion { region, length } = guarded.as_ref().ok_or_else(gone)?;
        let c = abi::ibv_mr {
            context,
            pd,
            addr: ptr::null_mut(),
            length: *length,
            handle: mr_handle,
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        drop(guarded);
        Ok(handle::create(c, MrState { region: shared }))
    })
}

/// # Safety
/// `mr` came from [`ibv_import_mr`] and is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut abi::ibv_mr) {
    guard::nothing("ibv_unimport_mr", || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, MrState>(mr) }.map(drop)
    });
}

/// # Safety
/// `pd` is null or live; `sg_list` has `num_sges` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut abi::ibv_pd,
    advice: abi::ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut abi::ibv_sge,
    num_sges: u32,
) -> c_int {
    guard::status("ibv_advise_mr", || {
        // SAFETY: the caller's contract.
        let domain = &unsafe { pd::state(pd) }?.pd;
        let (write, fault) = match advice {
            abi::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => (false, true),
            abi::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => (true, true),
            abi::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => (false, false),
            other => {
                return Err(Failure::new(
                    libc::ENOTSUP,
                    format!("advice {other} does not exist"),
                ));
            }
        };
        if flags & !ADVISE_FLUSH != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x} are undefined")));
        }
        // Without the flag the program does not want to wait: the first access faults pages in.
        let populate = fault && flags & ADVISE_FLUSH != 0;
        // SAFETY: the caller's contract.
        let sges = unsafe { wr::sge_list(sg_list, num_sges as usize, u32::MAX) }?;
        for sge in &sges {
            domain
                .prefetch(sge, write, populate)
                .map_err(|error| Failure::new(prefetch_errno(&error), error.to_string()))?;
        }
        Ok(())
    })
}

/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: return when it is done.
const ADVISE_FLUSH: u32 = 1;

/// As ibv_advise_mr(3) lists them.
const fn prefetch_errno(error: &PrefetchError) -> c_int {
    match error {
        PrefetchError::Claim(LocalFault::UnknownKey(_)) => libc::ENOENT,
        PrefetchError::Claim(LocalFault::WrongPd(..) | LocalFault::NotPermitted(_)) => libc::EPERM,
        _ => libc::EFAULT,
    }
}

/// # Safety
/// `pd` is null or live.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut abi::ibv_pd) -> *mut abi::ibv_mr {
    guard::pointer("ibv_alloc_null_mr", || {
        enroll(pd, ptr::null_mut(), 0, Memory::null(), 0, Access::NONE)
    })
}

/// # Safety
/// `pd` and `dm` are null or live.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut abi::ibv_pd,
    dm: *mut abi::ibv_dm,
    dm_offset: u64,
    length: usize,
    access: c_uint,
) -> *mut abi::ibv_mr {
    guard::pointer("ibv_reg_dm_mr", || {
        // SAFETY: the caller's contract.
        let memory = unsafe { dm::memory(dm) }?;
        let access = access_flags(access)?;
        let offset = usize::try_from(dm_offset).unwrap_or(usize::MAX);
        DeviceMemory::check_granule(offset, length)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let part = Memory::device(Arc::clone(memory), offset, length)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        enroll(pd, ptr::null_mut(), length, part, 0, access)
    })
}

refused! {
    "dma-bufs, buffers of a device and DMA handles need a device that the kernel drives";
    pointer fn ibv_reg_dmabuf_mr(
        pd: *mut abi::ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    pointer fn ibv_alloc_buf(
        pd: *mut abi::ibv_pd,
        size: usize,
        buf: *mut *mut abi::ibv_buf,
    ) -> *mut c_void;
    minus_one fn ibv_export_buf_dmabuf_fd(buf: *mut abi::ibv_buf) -> c_int;
    nothing fn ibv_free_buf(buf: *mut abi::ibv_buf);
    pointer fn ibv_reg_buf_mr(
        pd: *mut abi::ibv_pd,
        buf: *mut abi::ibv_buf,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    pointer fn ibv_alloc_dmah(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_dmah_init_attr,
    ) -> *mut abi::ibv_dmah;
    status fn ibv_dealloc_dmah(dmah: *mut abi::ibv_dmah) -> c_int;
}
