//! Attributes between the layouts of the kernel interface and of verbs. Only stock librdmacm and
//! its kin call these, on what the kernel's connection manager told them. Not here: anything that
//! Feroce's own objects use ([`crate::convert`]).
//!
//! A null pointer is refused without effect: these functions cannot report.

use feroce_verbs_abi as abi;

use crate::guard::{self, Failure};

/// # Safety
/// `dst` and `src` are null or point to their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    dst: *mut abi::ibv_ah_attr,
    src: *mut abi::ib_uverbs_ah_attr,
) {
    // SAFETY: the caller's contract, above.
    unsafe { copy("ibv_copy_ah_attr_from_kern", dst, src, ah_attr_from_kernel) };
}

/// # Safety
/// `dst` and `src` are null or point to their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut abi::ibv_qp_attr,
    src: *mut abi::ib_uverbs_qp_attr,
) {
    // SAFETY: the caller's contract, above.
    unsafe { copy("ibv_copy_qp_attr_from_kern", dst, src, qp_attr_from_kernel) };
}

/// # Safety
/// `dst` and `src` are null or point to their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut abi::ibv_sa_path_rec,
    src: *mut abi::ib_user_path_rec,
) {
    // SAFETY: the caller's contract, above.
    unsafe { copy("ibv_copy_path_rec_from_kern", dst, src, path_from_kernel) };
}

/// # Safety
/// `dst` and `src` are null or point to their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut abi::ib_user_path_rec,
    src: *mut abi::ibv_sa_path_rec,
) {
    // SAFETY: the caller's contract, above.
    unsafe { copy("ibv_copy_path_rec_to_kern", dst, src, path_to_kernel) };
}

/// # Safety
/// `target` and `source` are null or point to their types.
unsafe fn copy<T, S: Copy>(
    verb: &'static str,
    target: *mut T,
    source: *mut S,
    convert: fn(&S) -> T,
) {
    guard::nothing(verb, || {
        if target.is_null() || source.is_null() {
            return Err(Failure::invalid("a null pointer"));
        }
        // SAFETY: the caller's contract, above; null was refused. The source is read whole before
        // the target is written, should they overlap.
        unsafe { target.write(convert(&source.read())) };
        Ok(())
    });
}

fn ah_attr_from_kernel(kernel: &abi::ib_uverbs_ah_attr) -> abi::ibv_ah_attr {
    let grh = &kernel.grh;
    abi::ibv_ah_attr {
        grh: abi::ibv_global_route {
            dgid: abi::ibv_gid { raw: grh.dgid },
            flow_label: grh.flow_label,
            sgid_index: grh.sgid_index,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
        },
        dlid: kernel.dlid,
        sl: kernel.sl,
        src_path_bits: kernel.src_path_bits,
        static_rate: kernel.static_rate,
        is_global: kernel.is_global,
        port_num: kernel.port_num,
    }
}

fn qp_attr_from_kernel(kernel: &abi::ib_uverbs_qp_attr) -> abi::ibv_qp_attr {
    abi::ibv_qp_attr {
        qp_state: kernel.qp_state,
        cur_qp_state: kernel.cur_qp_state,
        path_mtu: kernel.path_mtu,
        path_mig_state: kernel.path_mig_state,
        qkey: kernel.qkey,
        rq_psn: kernel.rq_psn,
        sq_psn: kernel.sq_psn,
        dest_qp_num: kernel.dest_qp_num,
        qp_access_flags: kernel.qp_access_flags,
        cap: abi::ibv_qp_cap {
            max_send_wr: kernel.max_send_wr,
            max_recv_wr: kernel.max_recv_wr,
            max_send_sge: kernel.max_send_sge,
            max_recv_sge: kernel.max_recv_sge,
            max_inline_data: kernel.max_inline_data,
        },
        ah_attr: ah_attr_from_kernel(&kernel.ah_attr),
        alt_ah_attr: ah_attr_from_kernel(&kernel.alt_ah_attr),
        pkey_index: kernel.pkey_index,
        alt_pkey_index: kernel.alt_pkey_index,
        en_sqd_async_notify: kernel.en_sqd_async_notify,
        sq_draining: kernel.sq_draining,
        max_rd_atomic: kernel.max_rd_atomic,
        max_dest_rd_atomic: kernel.max_dest_rd_atomic,
        min_rnr_timer: kernel.min_rnr_timer,
        port_num: kernel.port_num,
        timeout: kernel.timeout,
        retry_cnt: kernel.retry_cnt,
        rnr_retry: kernel.rnr_retry,
        alt_port_num: kernel.alt_port_num,
        alt_timeout: kernel.alt_timeout,
        // The kernel's struct has no rate.
        rate_limit: 0,
    }
}

fn path_from_kernel(kernel: &abi::ib_user_path_rec) -> abi::ibv_sa_path_rec {
    abi::ibv_sa_path_rec {
        dgid: abi::ibv_gid { raw: kernel.dgid },
        sgid: abi::ibv_gid { raw: kernel.sgid },
        dlid: kernel.dlid,
        slid: kernel.slid,
        raw_traffic: kernel.raw_traffic.cast_signed(),
        flow_label: kernel.flow_label,
        hop_limit: kernel.hop_limit,
        traffic_class: kernel.traffic_class,
        reversible: kernel.reversible.cast_signed(),
        numb_path: kernel.numb_path,
        pkey: kernel.pkey,
        sl: kernel.sl,
        mtu_selector: kernel.mtu_selector,
        // A six-bit code that the kernel keeps in a word.
        mtu: (kernel.mtu & 0xff) as u8,
        rate_selector: kernel.rate_selector,
        rate: kernel.rate,
        packet_life_time_selector: kernel.packet_life_time_selector,
        packet_life_time: kernel.packet_life_time,
        preference: kernel.preference,
    }
}

fn path_to_kernel(path: &abi::ibv_sa_path_rec) -> abi::ib_user_path_rec {
    abi::ib_user_path_rec {
        // SAFETY: every member of the union is 16 plain bytes.
        dgid: unsafe { path.dgid.raw },
        // SAFETY: every member of the union is 16 plain bytes.
        sgid: unsafe { path.sgid.raw },
        dlid: path.dlid,
        slid: path.slid,
        raw_traffic: path.raw_traffic.cast_unsigned(),
        flow_label: path.flow_label,
        reversible: path.reversible.cast_unsigned(),
        mtu: u32::from(path.mtu),
        pkey: path.pkey,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        numb_path: path.numb_path,
        sl: path.sl,
        mtu_selector: path.mtu_selector,
        rate_selector: path.rate_selector,
        rate: path.rate,
        packet_life_time_selector: path.packet_life_time_selector,
        packet_life_time: path.packet_life_time,
        preference: path.preference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Counts up, so that a swapped pair of fields shows.
    fn kernel_path() -> abi::ib_user_path_rec {
        abi::ib_user_path_rec {
            dgid: [1; 16],
            sgid: [2; 16],
            dlid: 3,
            slid: 4,
            raw_traffic: 5,
            flow_label: 6,
            reversible: 7,
            mtu: 8,
            pkey: 9,
            hop_limit: 10,
            traffic_class: 11,
            numb_path: 12,
            sl: 13,
            mtu_selector: 14,
            rate_selector: 15,
            rate: 16,
            packet_life_time_selector: 17,
            packet_life_time: 18,
            preference: 19,
        }
    }

    fn bytes<T>(value: &T) -> Vec<u8> {
        // SAFETY: the types compared here have no padding that the conversions leave unset: the
        // kernel's path record is packed by its field order.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
    }

    #[test]
    fn a_path_record_survives_the_way_there_and_back() {
        let mut kernel = kernel_path();
        let mut path = abi::ibv_sa_path_rec::default();
        let mut again = abi::ib_user_path_rec::default();
        // SAFETY: three live records.
        unsafe {
            ibv_copy_path_rec_from_kern(&raw mut path, &raw mut kernel);
            ibv_copy_path_rec_to_kern(&raw mut again, &raw mut path);
        }
        assert_eq!((path.mtu, path.reversible, path.preference), (8, 7, 19));
        assert_eq!(bytes(&again), bytes(&kernel));
    }

    #[test]
    fn queue_pair_attributes_land_in_their_fields() {
        let mut kernel = abi::ib_uverbs_qp_attr {
            qp_state: abi::IBV_QPS_RTR,
            dest_qp_num: 0x12_3456,
            max_inline_data: 220,
            max_rd_atomic: 3,
            max_dest_rd_atomic: 4,
            rnr_retry: 7,
            alt_timeout: 14,
            ..Default::default()
        };
        kernel.ah_attr.grh.dgid[15] = 9;
        kernel.ah_attr.grh.sgid_index = 2;
        kernel.ah_attr.is_global = 1;
        kernel.alt_ah_attr.port_num = 5;
        let mut attr = abi::ibv_qp_attr {
            rate_limit: 1,
            ..Default::default()
        };
        // SAFETY: two live structs.
        unsafe { ibv_copy_qp_attr_from_kern(&raw mut attr, &raw mut kernel) };
        assert_eq!(
            (attr.qp_state, attr.dest_qp_num),
            (abi::IBV_QPS_RTR, 0x12_3456)
        );
        assert_eq!(
            (attr.cap.max_inline_data, attr.rnr_retry, attr.alt_timeout),
            (220, 7, 14)
        );
        assert_eq!(
            (attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.rate_limit),
            (3, 4, 0)
        );
        assert_eq!(
            (attr.ah_attr.grh.sgid_index, attr.ah_attr.is_global),
            (2, 1)
        );
        // SAFETY: every member of the union is 16 plain bytes.
        assert_eq!(unsafe { attr.ah_attr.grh.dgid.raw }[15], 9);
        assert_eq!(attr.alt_ah_attr.port_num, 5);
    }

    #[test]
    fn null_pointers_have_no_effect() {
        let mut attr = abi::ibv_ah_attr {
            sl: 3,
            ..Default::default()
        };
        // SAFETY: null is allowed.
        unsafe {
            ibv_copy_ah_attr_from_kern(&raw mut attr, ptr::null_mut());
            ibv_copy_ah_attr_from_kern(ptr::null_mut(), ptr::null_mut());
        }
        assert_eq!(attr.sl, 3);
    }
}
