//! Memory regions. Not here: windows ([`crate::mw`]), device memory itself ([`crate::dm`]).

use std::ffi::{c_int, c_uint, c_void};

use std::sync::{Mutex, PoisonError};

use feroce_verbs::{Access, Memory, MemoryRegion, RegisterError};
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure, unfilled};
use crate::{handle, pd};

/// The Rust part of an `ibv_mr`. Empty only while `ibv_rereg_mr` or `ibv_dereg_mr` works on it.
#[derive(Debug)]
pub(crate) struct MrState {
    pub(crate) region: Mutex<Option<MemoryRegion>>,
}

/// Registers memory and makes the C object.
fn register(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut abi::ibv_mr, Failure> {
    // SAFETY: every caller's contract: `pd` is null or live.
    let domain = &unsafe { pd::state(pd) }?.pd;
    let access = access_flags(access)?;
    let memory = if addr.is_null() && length == usize::MAX && access.contains(Access::ON_DEMAND) {
        // SAFETY: the program asks for its whole address space to be reachable.
        unsafe { Memory::address_space() }
    } else {
        // SAFETY: every caller's contract: the memory stays mapped until `ibv_dereg_mr`.
        unsafe { Memory::from_raw(addr.cast(), length) }
    };
    let region = domain
        .register(memory, iova, access)
        .map_err(|error| Failure::new(register_errno(&error), error.to_string()))?;
    Ok(create(pd, addr, length, region))
}

/// Makes the C object of a region.
pub(crate) fn create(
    pd: *mut abi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    region: MemoryRegion,
) -> *mut abi::ibv_mr {
    let c = abi::ibv_mr {
        // SAFETY: the region was just registered in it, so it is live.
        context: unsafe { (*pd).context },
        pd,
        addr,
        length,
        handle: region.lkey(),
        lkey: region.lkey(),
        rkey: region.rkey(),
    };
    handle::create(
        c,
        MrState {
            region: Mutex::new(Some(region)),
        },
    )
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
        let translation = (what & abi::IBV_REREG_MR_CHANGE_TRANSLATION != 0)
            // SAFETY: the caller's contract.
            .then(|| {
                (
                    unsafe { Memory::from_raw(addr.cast(), length) },
                    addr as u64,
                )
            });
        let moved = translation.is_some();
        let mut guarded = state.region.lock().unwrap_or_else(PoisonError::into_inner);
        let region = guarded
            .as_mut()
            .ok_or_else(|| Failure::invalid("the region is gone"))?;
        region
            .reregister(domain, translation, rights)
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
    guard::status("ibv_dereg_mr", || {
        // SAFETY: the caller's contract.
        let state = unsafe { handle::rust::<_, MrState>(mr) }?;
        let mut guarded = state.region.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = guarded.take()
            && let Err((region, error)) = region.close()
        {
            *guarded = Some(region);
            return Err(Failure::new(libc::EBUSY, error.to_string()));
        }
        drop(guarded);
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, MrState>(mr) }.map(drop)
    })
}

unfilled! {
    export pointer fn ibv_reg_mr_ex(
        pd: *mut abi::ibv_pd,
        mr_init_attr: *mut abi::ibv_mr_init_attr,
    ) -> *mut abi::ibv_mr;
    export pointer fn ibv_reg_dmabuf_mr(
        pd: *mut abi::ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    export pointer fn ibv_import_mr(pd: *mut abi::ibv_pd, mr_handle: u32) -> *mut abi::ibv_mr;
    export nothing fn ibv_unimport_mr(mr: *mut abi::ibv_mr);
    export pointer fn ibv_alloc_buf(
        pd: *mut abi::ibv_pd,
        size: usize,
        buf: *mut *mut abi::ibv_buf,
    ) -> *mut c_void;
    export minus_one fn ibv_export_buf_dmabuf_fd(buf: *mut abi::ibv_buf) -> c_int;
    export nothing fn ibv_free_buf(buf: *mut abi::ibv_buf);
    export pointer fn ibv_reg_buf_mr(
        pd: *mut abi::ibv_pd,
        buf: *mut abi::ibv_buf,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    export pointer fn ibv_alloc_dmah(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_dmah_init_attr,
    ) -> *mut abi::ibv_dmah;
    export status fn ibv_dealloc_dmah(dmah: *mut abi::ibv_dmah) -> c_int;
    ,
    operation status fn advise_mr(
        pd: *mut abi::ibv_pd,
        advice: abi::ib_uverbs_advise_mr_advice,
        flags: u32,
        sg_list: *mut abi::ibv_sge,
        num_sges: u32,
    ) -> c_int;
    operation pointer fn alloc_null_mr(pd: *mut abi::ibv_pd) -> *mut abi::ibv_mr;
    operation pointer fn reg_dm_mr(
        pd: *mut abi::ibv_pd,
        dm: *mut abi::ibv_dm,
        dm_offset: u64,
        length: usize,
        access: c_uint,
    ) -> *mut abi::ibv_mr;
}
