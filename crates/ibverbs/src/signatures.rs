//! Do the entry points have the signatures of the C header? An array holds our function beside the
//! header's declaration of it: the compiler refuses two types. Not here: names and versions, which
//! `cargo xtask abi` compares.

use feroce_verbs_abi::functions as header;

use crate::{ah, cancel, counter, cq, device, dm, event, fork, mr, name, pd, qp, query, rate, srq};

macro_rules! same {
    ($($module:ident::$ours:ident $(as $theirs:ident)?;)*) => {
        $(let _ = [$module::$ours, same!(@ $ours $($theirs)?)];)*
    };
    (@ $ours:ident) => { header::$ours };
    (@ $ours:ident $theirs:ident) => { header::$theirs };
}

#[test]
fn entry_points_have_the_signatures_of_the_header() {
    same! {
        ah::ibv_create_ah;
        ah::ibv_create_ah_from_wc;
        ah::ibv_destroy_ah;
        ah::ibv_init_ah_from_wc;
        ah::ibv_resolve_eth_l2_from_gid;
        cancel::ibv_get_cq_event;
        counter::_ibv_query_comp_cntr_caps;
        counter::ibv_create_comp_cntr;
        counter::ibv_destroy_comp_cntr;
        counter::ibv_inc_comp_cntr;
        counter::ibv_inc_err_comp_cntr;
        counter::ibv_qp_attach_comp_cntr;
        counter::ibv_read_comp_cntr;
        counter::ibv_read_err_comp_cntr;
        counter::ibv_set_comp_cntr;
        counter::ibv_set_err_comp_cntr;
        cq::ibv_ack_cq_events;
        cq::ibv_create_comp_channel;
        cq::ibv_create_cq;
        cq::ibv_destroy_comp_channel;
        cq::ibv_destroy_cq;
        cq::ibv_resize_cq;
        device::ibv_close_device;
        device::ibv_free_device_list;
        device::ibv_get_device_guid;
        device::ibv_get_device_index;
        device::ibv_get_device_list;
        device::ibv_get_device_name;
        device::ibv_import_device;
        device::ibv_open_device;
        dm::ibv_dm_export_dmabuf_fd;
        dm::ibv_import_dm;
        dm::ibv_unimport_dm;
        event::ibv_ack_async_event;
        event::ibv_get_async_event;
        fork::ibv_fork_init;
        fork::ibv_is_fork_initialized;
    }
}

#[test]
fn memory_and_queues_have_the_signatures_of_the_header() {
    same! {
        mr::ibv_alloc_buf;
        mr::ibv_alloc_dmah;
        mr::ibv_dealloc_dmah;
        mr::ibv_dereg_mr;
        mr::ibv_export_buf_dmabuf_fd;
        mr::ibv_free_buf;
        mr::ibv_import_mr;
        mr::ibv_reg_buf_mr;
        mr::ibv_reg_dmabuf_mr;
        mr::ibv_reg_mr;
        mr::ibv_reg_mr_ex;
        mr::ibv_reg_mr_iova;
        mr::ibv_reg_mr_iova2;
        mr::ibv_rereg_mr;
        mr::ibv_unimport_mr;
        name::feroce_wr_opcode_str as ibv_wr_opcode_str;
        name::ibv_event_type_str;
        name::ibv_node_type_str;
        name::ibv_port_state_str;
        name::ibv_wc_status_str;
        pd::ibv_alloc_pd;
        pd::ibv_dealloc_pd;
        pd::ibv_import_pd;
        pd::ibv_unimport_pd;
        qp::ibv_attach_mcast;
        qp::ibv_create_qp;
        qp::ibv_destroy_qp;
        qp::ibv_detach_mcast;
        qp::ibv_modify_qp;
        qp::ibv_qp_to_qp_ex;
        qp::ibv_query_ece;
        qp::ibv_query_qp;
        qp::ibv_query_qp_data_in_order;
        qp::ibv_set_ece;
        query::_ibv_query_gid_ex;
        query::_ibv_query_gid_table;
        query::ibv_get_pkey_index;
        query::ibv_query_device;
        query::ibv_query_gid;
        query::ibv_query_pkey;
        query::ibv_query_port;
        query::ibv_query_port_speed;
        rate::ibv_rate_to_mbps;
        rate::ibv_rate_to_mult;
        rate::mbps_to_ibv_rate;
        rate::mult_to_ibv_rate;
        srq::ibv_create_srq;
        srq::ibv_destroy_srq;
        srq::ibv_modify_srq;
        srq::ibv_query_srq;
    }
}

#[test]
fn what_librdmacm_asks_has_the_signatures_of_its_declarations() {
    use feroce_verbs_abi::gsi as header;
    macro_rules! same_gsi {
        ($($name:ident;)*) => { $(let _ = [crate::gsi::$name, header::$name];)* };
    }
    same_gsi! {
        feroce_gsi_claim;
        feroce_gsi_claim_listen;
        feroce_gsi_claim_release;
        feroce_gsi_close;
        feroce_gsi_fd;
        feroce_gsi_open;
        feroce_gsi_receive;
        feroce_gsi_send;
        feroce_gsi_slot;
    }
}
