/* The binary interface, offset by offset and number by number: compiling this file is the test. */
#include <libnetmap.h>
#include <stddef.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define IS(name, value) _Static_assert((unsigned long long)(name) == (unsigned long long)(value), #name)

IS(NETMAP_API, 14);
IS(NETMAP_MIN_API, 14);
IS(NETMAP_MAX_API, 15);
IS(NM_CACHE_ALIGN, 128);

/* Declarations that programs get through these headers. */
IS(IFNAMSIZ, 16);
IS(AF_INET, 2);
int (*const of_ctype)(int) = isdigit;

SIZE(struct netmap_slot, 16);
AT(struct netmap_slot, buf_idx, 0);
AT(struct netmap_slot, len, 4);
AT(struct netmap_slot, flags, 6);
AT(struct netmap_slot, ptr, 8);

SIZE(struct netmap_ring, 256);
AT(struct netmap_ring, buf_ofs, 0);
AT(struct netmap_ring, num_slots, 8);
AT(struct netmap_ring, nr_buf_size, 12);
AT(struct netmap_ring, ringid, 16);
AT(struct netmap_ring, dir, 18);
AT(struct netmap_ring, head, 20);
AT(struct netmap_ring, cur, 24);
AT(struct netmap_ring, tail, 28);
AT(struct netmap_ring, flags, 32);
AT(struct netmap_ring, ts, 40);
AT(struct netmap_ring, offset_mask, 56);
AT(struct netmap_ring, buf_align, 64);
AT(struct netmap_ring, sem, 128);
AT(struct netmap_ring, slot, 256);

SIZE(struct netmap_if, 56);
AT(struct netmap_if, ni_name, 0);
AT(struct netmap_if, ni_version, 16);
AT(struct netmap_if, ni_flags, 20);
AT(struct netmap_if, ni_tx_rings, 24);
AT(struct netmap_if, ni_rx_rings, 28);
AT(struct netmap_if, ni_bufs_head, 32);
AT(struct netmap_if, ni_host_tx_rings, 36);
AT(struct netmap_if, ni_host_rx_rings, 40);
AT(struct netmap_if, ring_ofs, 56);

SIZE(struct nmreq_header, 88);
AT(struct nmreq_header, nr_version, 0);
AT(struct nmreq_header, nr_reqtype, 2);
AT(struct nmreq_header, nr_reserved, 4);
AT(struct nmreq_header, nr_name, 8);
AT(struct nmreq_header, nr_options, 72);
AT(struct nmreq_header, nr_body, 80);

SIZE(struct nmreq_option, 24);
AT(struct nmreq_option, nro_next, 0);
AT(struct nmreq_option, nro_reqtype, 8);
AT(struct nmreq_option, nro_status, 12);
AT(struct nmreq_option, nro_size, 16);

SIZE(struct nmreq_register, 56);
AT(struct nmreq_register, nr_offset, 0);
AT(struct nmreq_register, nr_memsize, 8);
AT(struct nmreq_register, nr_tx_slots, 16);
AT(struct nmreq_register, nr_rx_slots, 20);
AT(struct nmreq_register, nr_tx_rings, 24);
AT(struct nmreq_register, nr_rx_rings, 26);
AT(struct nmreq_register, nr_host_tx_rings, 28);
AT(struct nmreq_register, nr_host_rx_rings, 30);
AT(struct nmreq_register, nr_mem_id, 32);
AT(struct nmreq_register, nr_ringid, 34);
AT(struct nmreq_register, nr_mode, 36);
AT(struct nmreq_register, nr_extra_bufs, 40);
AT(struct nmreq_register, nr_flags, 48);

SIZE(struct nmreq_port_info_get, 32);
AT(struct nmreq_port_info_get, nr_memsize, 0);
AT(struct nmreq_port_info_get, nr_tx_slots, 8);
AT(struct nmreq_port_info_get, nr_rx_slots, 12);
AT(struct nmreq_port_info_get, nr_tx_rings, 16);
AT(struct nmreq_port_info_get, nr_rx_rings, 18);
AT(struct nmreq_port_info_get, nr_host_tx_rings, 20);
AT(struct nmreq_port_info_get, nr_host_rx_rings, 22);
AT(struct nmreq_port_info_get, nr_mem_id, 24);

SIZE(struct nmreq_vale_attach, 64);
AT(struct nmreq_vale_attach, reg, 0);
AT(struct nmreq_vale_attach, port_index, 56);

SIZE(struct nmreq_vale_detach, 8);
AT(struct nmreq_vale_detach, port_index, 0);

SIZE(struct nmreq_vale_list, 8);
AT(struct nmreq_vale_list, nr_bridge_idx, 0);
AT(struct nmreq_vale_list, nr_port_idx, 4);

SIZE(struct nmreq_port_hdr, 8);
AT(struct nmreq_port_hdr, nr_hdr_len, 0);

SIZE(struct nmreq_vale_newif, 16);
AT(struct nmreq_vale_newif, nr_tx_slots, 0);
AT(struct nmreq_vale_newif, nr_rx_slots, 4);
AT(struct nmreq_vale_newif, nr_tx_rings, 8);
AT(struct nmreq_vale_newif, nr_rx_rings, 10);
AT(struct nmreq_vale_newif, nr_mem_id, 12);

SIZE(struct nmreq_vale_polling, 16);
AT(struct nmreq_vale_polling, nr_mode, 0);
AT(struct nmreq_vale_polling, nr_first_cpu_id, 4);
AT(struct nmreq_vale_polling, nr_num_polling_cpus, 8);

SIZE(struct nmreq_pools_info, 64);
AT(struct nmreq_pools_info, nr_memsize, 0);
AT(struct nmreq_pools_info, nr_mem_id, 8);
AT(struct nmreq_pools_info, nr_if_pool_offset, 16);
AT(struct nmreq_pools_info, nr_if_pool_objtotal, 24);
AT(struct nmreq_pools_info, nr_if_pool_objsize, 28);
AT(struct nmreq_pools_info, nr_ring_pool_offset, 32);
AT(struct nmreq_pools_info, nr_ring_pool_objtotal, 40);
AT(struct nmreq_pools_info, nr_ring_pool_objsize, 44);
AT(struct nmreq_pools_info, nr_buf_pool_offset, 48);
AT(struct nmreq_pools_info, nr_buf_pool_objtotal, 56);
AT(struct nmreq_pools_info, nr_buf_pool_objsize, 60);

SIZE(struct nmreq_sync_kloop_start, 8);
AT(struct nmreq_sync_kloop_start, sleep_us, 0);

SIZE(struct nm_csb_atok, 64);
AT(struct nm_csb_atok, head, 0);
AT(struct nm_csb_atok, cur, 4);
AT(struct nm_csb_atok, appl_need_kick, 8);
AT(struct nm_csb_atok, sync_flags, 12);

SIZE(struct nm_csb_ktoa, 64);
AT(struct nm_csb_ktoa, hwcur, 0);
AT(struct nm_csb_ktoa, hwtail, 4);
AT(struct nm_csb_ktoa, kern_need_kick, 8);

SIZE(struct nmreq_opt_csb, 40);
AT(struct nmreq_opt_csb, nro_opt, 0);
AT(struct nmreq_opt_csb, csb_atok, 24);
AT(struct nmreq_opt_csb, csb_ktoa, 32);

SIZE(struct nmreq_opt_extmem, 96);
AT(struct nmreq_opt_extmem, nro_usrptr, 24);
AT(struct nmreq_opt_extmem, nro_info, 32);

SIZE(struct nmreq_opt_offsets, 56);
AT(struct nmreq_opt_offsets, nro_max_offset, 24);
AT(struct nmreq_opt_offsets, nro_initial_offset, 32);
AT(struct nmreq_opt_offsets, nro_offset_bits, 40);
AT(struct nmreq_opt_offsets, nro_tx_align, 44);
AT(struct nmreq_opt_offsets, nro_min_gap, 48);

SIZE(struct nmreq, 60);
AT(struct nmreq, nr_name, 0);
AT(struct nmreq, nr_version, 16);
AT(struct nmreq, nr_offset, 20);
AT(struct nmreq, nr_memsize, 24);
AT(struct nmreq, nr_tx_slots, 28);
AT(struct nmreq, nr_rx_slots, 32);
AT(struct nmreq, nr_tx_rings, 36);
AT(struct nmreq, nr_rx_rings, 38);
AT(struct nmreq, nr_ringid, 40);
AT(struct nmreq, nr_cmd, 42);
AT(struct nmreq, nr_arg1, 44);
AT(struct nmreq, nr_arg2, 46);
AT(struct nmreq, nr_arg3, 48);
AT(struct nmreq, nr_flags, 52);

IS(NIOCCTRL, 0xc0586997);
IS(NIOCGINFO, 0xc03c6991);
IS(NIOCREGIF, 0xc03c6992);
IS(NIOCTXSYNC, 0x6994);
IS(NIOCRXSYNC, 0x6995);
IS(NIOCCONFIG, 0xc1106996);

IS(NS_BUF_CHANGED, 0x1);
IS(NS_REPORT, 0x2);
IS(NS_FORWARD, 0x4);
IS(NS_NO_LEARN, 0x8);
IS(NS_INDIRECT, 0x10);
IS(NS_MOREFRAG, 0x20);
IS(NS_TXMON, 0x40);
IS(NS_PORT_SHIFT, 0x8);
IS(NS_PORT_MASK, 0xff00);
IS(NETMAP_MAX_FRAGS, 0x40);

IS(NR_TIMESTAMP, 0x2);
IS(NR_FORWARD, 0x4);

IS(NETMAP_REQ_REGISTER, 0x1);
IS(NETMAP_REQ_PORT_INFO_GET, 0x2);
IS(NETMAP_REQ_VALE_ATTACH, 0x3);
IS(NETMAP_REQ_VALE_DETACH, 0x4);
IS(NETMAP_REQ_VALE_LIST, 0x5);
IS(NETMAP_REQ_PORT_HDR_SET, 0x6);
IS(NETMAP_REQ_PORT_HDR_GET, 0x7);
IS(NETMAP_REQ_VALE_NEWIF, 0x8);
IS(NETMAP_REQ_VALE_DELIF, 0x9);
IS(NETMAP_REQ_VALE_POLLING_ENABLE, 0xa);
IS(NETMAP_REQ_VALE_POLLING_DISABLE, 0xb);
IS(NETMAP_REQ_POOLS_INFO_GET, 0xc);
IS(NETMAP_REQ_SYNC_KLOOP_START, 0xd);
IS(NETMAP_REQ_SYNC_KLOOP_STOP, 0xe);
IS(NETMAP_REQ_CSB_ENABLE, 0xf);

IS(NETMAP_REQ_OPT_EXTMEM, 0x1);
IS(NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, 0x2);
IS(NETMAP_REQ_OPT_CSB, 0x3);
IS(NETMAP_REQ_OPT_SYNC_KLOOP_MODE, 0x4);
IS(NETMAP_REQ_OPT_OFFSETS, 0x5);

IS(NR_REG_DEFAULT, 0x0);
IS(NR_REG_ALL_NIC, 0x1);
IS(NR_REG_SW, 0x2);
IS(NR_REG_NIC_SW, 0x3);
IS(NR_REG_ONE_NIC, 0x4);
IS(NR_REG_PIPE_MASTER, 0x5);
IS(NR_REG_PIPE_SLAVE, 0x6);
IS(NR_REG_NULL, 0x7);
IS(NR_REG_ONE_SW, 0x8);

IS(NR_MONITOR_TX, 0x100);
IS(NR_MONITOR_RX, 0x200);
IS(NR_ZCOPY_MON, 0x400);
IS(NR_EXCLUSIVE, 0x800);
IS(NR_RX_RINGS_ONLY, 0x2000);
IS(NR_TX_RINGS_ONLY, 0x4000);
IS(NR_ACCEPT_VNET_HDR, 0x8000);
IS(NR_DO_RX_POLL, 0x10000);
IS(NR_NO_TX_POLL, 0x20000);

IS(NETMAP_BDG_ATTACH, 0x1);
IS(NETMAP_BDG_DETACH, 0x2);
IS(NETMAP_BDG_REGOPS, 0x3);
IS(NETMAP_BDG_LIST, 0x4);
IS(NETMAP_BDG_VNET_HDR, 0x5);
IS(NETMAP_BDG_NEWIF, 0x6);
IS(NETMAP_BDG_DELIF, 0x7);
IS(NETMAP_PT_HOST_CREATE, 0x8);
IS(NETMAP_BDG_POLLING_ON, 0xa);
IS(NETMAP_BDG_POLLING_OFF, 0xb);
IS(NETMAP_VNET_HDR_GET, 0xc);
IS(NETMAP_BDG_HOST, 0x1);
IS(NETMAP_HW_RING, 0x4000);
IS(NETMAP_SW_RING, 0x2000);
IS(NETMAP_NO_TX_POLL, 0x1000);
IS(NETMAP_DO_RX_POLL, 0x8000);
IS(NETMAP_RING_MASK, 0xfff);

int
main(void)
{
	return 0;
}
