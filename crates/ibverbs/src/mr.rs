//! Memory regions. Not here: windows ([`crate::mw`]), device memory itself ([`crate::dm`]).

use std::ffi::{c_int, c_uint, c_void};

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_reg_mr(
        pd: *mut abi::ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    export pointer fn ibv_reg_mr_iova(
        pd: *mut abi::ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut abi::ibv_mr;
    export pointer fn ibv_reg_mr_iova2(
        pd: *mut abi::ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut abi::ibv_mr;
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
    export status fn ibv_rereg_mr(
        mr: *mut abi::ibv_mr,
        flags: c_int,
        pd: *mut abi::ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int;
    export status fn ibv_dereg_mr(mr: *mut abi::ibv_mr) -> c_int;
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
