/* Every control request about a network interface, in each of its states: not open, open, open with host rings, on a switch, absent.
 * Usage: interface_requests INTERFACE SWITCH */
#include "common.h"
#include <libnetmap.h>

#define NONE "nosuchif0"

static const char *nic;
static char on_switch[64], none_on_switch[64];
static int fd;

/* Returns the errno of a request; 0 if it is executed. */
static int
ask(const char *name, uint16_t type, void *body)
{
	return request(fd, name, type, body) == 0 ? 0 : errno;
}

#define GIVES(want, name, type, body) \
	do { \
		int got_ = ask(name, type, body); \
		CHECK(got_ == (want), "%s of %s: %s, not %s", #type, name, strerror(got_), strerror(want)); \
	} while (0)

static struct nmreq_port_info_get
info_of(const char *name, uint16_t host_tx, uint16_t host_rx)
{
	struct nmreq_port_info_get i = { .nr_host_tx_rings = host_tx, .nr_host_rx_rings = host_rx };

	GIVES(0, name, NETMAP_REQ_PORT_INFO_GET, &i);
	CHECK(i.nr_memsize && i.nr_tx_slots == 1024 && i.nr_rx_slots == 1024, "memory and slots of %s", name);
	CHECK(i.nr_tx_rings == 1 && i.nr_rx_rings == 1, "rings of %s: %u, %u", name, i.nr_tx_rings, i.nr_rx_rings);
	return i;
}

/* The answers of an interface, which do not depend on its holder. */
static void
facts(uint16_t host_tx, uint16_t host_rx)
{
	struct nmreq_port_info_get i = info_of(nic, 0, 0);
	struct nmreq_pools_info p = { 0 };
	struct nmreq_port_hdr h;
	struct nmreq legacy = { .nr_version = NETMAP_API };
	char prefixed[64];

	CHECK(i.nr_mem_id == 1, "interfaces share region 1, not %u", i.nr_mem_id);
	CHECK(i.nr_host_tx_rings == host_tx && i.nr_host_rx_rings == host_rx, "%u, %u", i.nr_host_tx_rings,
	    i.nr_host_rx_rings);
	snprintf(prefixed, sizeof(prefixed), "netmap:%s", nic);
	CHECK(info_of(prefixed, 0, 0).nr_memsize == i.nr_memsize, "with its prefix");
	i.nr_mem_id = 60000;
	GIVES(EINVAL, nic, NETMAP_REQ_PORT_INFO_GET, &i);

	GIVES(0, nic, NETMAP_REQ_POOLS_INFO_GET, &p);
	CHECK(p.nr_mem_id == 1 && p.nr_memsize == info_of(nic, 0, 0).nr_memsize, "pools");
	CHECK(p.nr_if_pool_objtotal && p.nr_ring_pool_objtotal && p.nr_buf_pool_objtotal, "objects");
	CHECK(p.nr_buf_pool_offset > p.nr_ring_pool_offset && p.nr_ring_pool_offset > p.nr_if_pool_offset, "places");

	memset(&h, 0xff, sizeof(h));
	GIVES(0, nic, NETMAP_REQ_PORT_HDR_GET, &h);
	CHECK(h.nr_hdr_len == 0, "no header");
	h.nr_hdr_len = 12;
	GIVES(ENXIO, nic, NETMAP_REQ_PORT_HDR_SET, &h);
	h.nr_hdr_len = 11;
	GIVES(EINVAL, nic, NETMAP_REQ_PORT_HDR_SET, &h);

	snprintf(legacy.nr_name, sizeof(legacy.nr_name), "%.15s", nic);
	CHECK(ioctl(fd, NIOCGINFO, &legacy) == 0, "NIOCGINFO");
	CHECK(legacy.nr_tx_rings == 1 && legacy.nr_rx_rings == 1 && legacy.nr_tx_slots == 1024 && legacy.nr_arg2 == 1,
	    "its answer");
	CHECK(legacy.nr_memsize == (uint32_t)p.nr_memsize, "its memory");
}

/* Requests about switches, for an interface that is not on a switch. */
static void
not_on_a_switch(void)
{
	struct nmreq_vale_polling poll = { .nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU, .nr_num_polling_cpus = 1 };
	struct nmreq_vale_detach d = { 0 };
	struct nmreq_vale_list l = { 0 };
	struct nmreq_vale_newif n = { 0 };
	struct nmreq_port_hdr h = { 0 };
	struct nmreq_register r = { 0 };

	GIVES(EINVAL, nic, NETMAP_REQ_VALE_DETACH, &d);
	GIVES(ENXIO, on_switch, NETMAP_REQ_VALE_DETACH, &d);
	GIVES(EINVAL, nic, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	GIVES(ENXIO, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	GIVES(ENXIO, on_switch, NETMAP_REQ_PORT_HDR_GET, &h);
	GIVES(ENXIO, on_switch, NETMAP_REQ_PORT_HDR_SET, &h);
	GIVES(ENOENT, on_switch, NETMAP_REQ_VALE_LIST, &l);
	/* The name of an interface is no persistent port's. */
	GIVES(EEXIST, nic, NETMAP_REQ_VALE_NEWIF, &n);
	GIVES(EINVAL, nic, NETMAP_REQ_VALE_DELIF, NULL);
	/* Nor that of a switch's port, unless attached. */
	r.nr_mode = NR_REG_ALL_NIC;
	GIVES(EINVAL, on_switch, NETMAP_REQ_REGISTER, &r);
	{
		struct nmreq_port_info_get i = { 0 };

		GIVES(EINVAL, on_switch, NETMAP_REQ_PORT_INFO_GET, &i);
	}
}

static struct nmreq_vale_attach
attachment(uint32_t mode)
{
	struct nmreq_vale_attach a = { .reg.nr_mode = mode };

	return a;
}

static void
not_there(void)
{
	struct nmreq_vale_attach a = attachment(NR_REG_ALL_NIC);
	struct nmreq_port_info_get i = { 0 };
	struct nmreq_pools_info p = { 0 };
	struct nmreq_port_hdr h = { 0 };
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC };
	struct nmreq legacy = { .nr_version = NETMAP_API };

	GIVES(ENXIO, NONE, NETMAP_REQ_REGISTER, &r);
	GIVES(ENXIO, NONE, NETMAP_REQ_PORT_INFO_GET, &i);
	GIVES(ENXIO, NONE, NETMAP_REQ_POOLS_INFO_GET, &p);
	i.nr_mem_id = 60000;
	GIVES(EINVAL, NONE, NETMAP_REQ_PORT_INFO_GET, &i);
	GIVES(ENXIO, NONE, NETMAP_REQ_PORT_HDR_GET, &h);
	GIVES(ENXIO, NONE, NETMAP_REQ_PORT_HDR_SET, &h);
	GIVES(ENXIO, NONE, NETMAP_REQ_VALE_DELIF, NULL);
	GIVES(EINVAL, none_on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	strcpy(legacy.nr_name, NONE);
	CHECK(ioctl(fd, NIOCGINFO, &legacy) < 0 && errno == ENXIO, "NIOCGINFO");
	CHECK(ioctl(fd, NIOCREGIF, &legacy) < 0 && errno == ENXIO, "NIOCREGIF");
}

/* A program has the interface open. */
static void
while_open(void)
{
	struct nmreq_vale_attach a = attachment(NR_REG_ALL_NIC);
	struct nmreq_register r = { .nr_mode = NR_REG_SW, .nr_host_tx_rings = 3 };
	struct port p = open_port(nic);
	struct port host;
	uint16_t type;

	CHECK(p.reg.nr_mem_id == 1 && p.reg.nr_tx_rings == 1 && p.reg.nr_host_tx_rings == 1, "registered");
	CHECK(p.reg.nr_memsize == info_of(nic, 0, 0).nr_memsize, "as large as was said");
	facts(1, 1);
	not_on_a_switch();
	GIVES(EBUSY, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	/* The program's descriptor answers like any other, and has one registration. */
	CHECK(request(p.fd, nic, NETMAP_REQ_REGISTER, &p.reg) < 0 && errno == EBUSY, "twice");
	type = NETMAP_REQ_PORT_INFO_GET;
	{
		struct nmreq_port_info_get i = { 0 };

		CHECK(request(p.fd, nic, type, &i) == 0 && i.nr_mem_id == 1, "asked by its owner");
	}
	/* The holder of the interface decides the number of host rings. */
	CHECK(info_of(nic, 7, 7).nr_host_tx_rings == 1, "no others now");
	host = open_port_with(nic, r);
	CHECK(host.reg.nr_host_tx_rings == 1 && host.reg.nr_mem_id == 1, "one host ring, in the same memory");
	GIVES(EBUSY, nic, NETMAP_REQ_REGISTER, &r);
	close_port(&p);
	GIVES(EBUSY, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	close_port(&host);
}

static void
with_host_rings(void)
{
	struct nmreq_register r = { .nr_mode = NR_REG_NIC_SW, .nr_host_tx_rings = 3, .nr_host_rx_rings = 2 };
	struct port p;

	p = open_port_with(nic, r);
	CHECK(p.reg.nr_host_tx_rings == 3 && p.reg.nr_host_rx_rings == 2 && p.reg.nr_tx_rings == 1, "as asked");
	facts(3, 2);
	close_port(&p);
}

static void
while_on_a_switch(void)
{
	struct nmreq_vale_polling poll = { .nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU, .nr_num_polling_cpus = 1 };
	struct nmreq_vale_attach a = attachment(NR_REG_NIC_SW);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct nmreq_register r = { 0 };
	struct nmreq_vale_detach d = { 0 };
	struct nmreq_vale_list l = { 0 };
	struct nmreq_port_hdr h;

	a.reg.nr_mem_id = 60000;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	a = attachment(NR_REG_ONE_NIC);
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	a = attachment(NR_REG_ALL_NIC);
	a.reg.nr_ringid = 1;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	a = attachment(NR_REG_NIC_SW);
	GIVES(EINVAL, nic, NETMAP_REQ_VALE_ATTACH, &a);
	GIVES(0, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	GIVES(EBUSY, on_switch, NETMAP_REQ_VALE_ATTACH, &a);
	facts(1, 1);
	CHECK(info_of(on_switch, 0, 0).nr_mem_id == 1, "by its name on the switch");
	CHECK(info_of(nic, 5, 5).nr_host_tx_rings == 1, "one host ring there");

	for (r.nr_mode = NR_REG_ALL_NIC; r.nr_mode <= NR_REG_NIC_SW; r.nr_mode++)
		GIVES(EBUSY, nic, NETMAP_REQ_REGISTER, &r);
	r.nr_mode = NR_REG_ALL_NIC;
	GIVES(EBUSY, on_switch, NETMAP_REQ_REGISTER, &r);

	memset(&h, 0xff, sizeof(h));
	GIVES(0, on_switch, NETMAP_REQ_PORT_HDR_GET, &h);
	CHECK(h.nr_hdr_len == 0, "no header");
	GIVES(0, on_switch, NETMAP_REQ_PORT_HDR_SET, &h);
	GIVES(0, on_switch, NETMAP_REQ_VALE_LIST, &l);
	CHECK(l.nr_port_idx == a.port_index, "listed where it was attached");

	GIVES(EFAULT, on_switch, NETMAP_REQ_VALE_POLLING_DISABLE, &poll);
	poll.nr_num_polling_cpus = 0;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	poll.nr_num_polling_cpus = (uint32_t)cpus;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	poll.nr_num_polling_cpus = 1;
	poll.nr_mode = NETMAP_POLLING_MODE_MULTI_CPU;
	poll.nr_first_cpu_id = 1;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	poll.nr_first_cpu_id = 0;
	poll.nr_mode = 77;
	GIVES(EINVAL, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
	poll.nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU;
	if (cpus > 1) {
		GIVES(0, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
		GIVES(EFAULT, on_switch, NETMAP_REQ_VALE_POLLING_ENABLE, &poll);
		GIVES(EBUSY, on_switch, NETMAP_REQ_VALE_DETACH, &d);
		GIVES(0, on_switch, NETMAP_REQ_VALE_POLLING_DISABLE, &poll);
	}
	GIVES(0, on_switch, NETMAP_REQ_VALE_DETACH, &d);
	CHECK(d.port_index == a.port_index, "the same place");
	GIVES(ENXIO, on_switch, NETMAP_REQ_VALE_DETACH, &d);
}

/* The legacy API: the mode in nr_flags, or in nr_ringid as before nr_flags existed. */
static void
legacy(void)
{
	static const struct {
		uint16_t ringid;
		uint32_t flags;
		uint32_t mode;
		unsigned tx;
	} rows[] = {
		{ 0, 0, NR_REG_ALL_NIC, 0 },
		{ NETMAP_SW_RING, 0, NR_REG_SW, 1 },
		{ NETMAP_HW_RING, 0, NR_REG_ONE_NIC, 0 },
		{ NETMAP_NO_TX_POLL, NR_REG_SW, NR_REG_SW, 1 },
		{ 0, NR_REG_NIC_SW, NR_REG_NIC_SW, 0 },
		{ 0, NR_REG_ONE_SW, NR_REG_ONE_SW, 1 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct netmap_if *nifp;
		struct nmreq r = { .nr_version = NETMAP_API };
		char *mem;
		int one = device();

		snprintf(r.nr_name, sizeof(r.nr_name), "%.15s", nic);
		r.nr_ringid = rows[i].ringid;
		r.nr_flags = rows[i].flags;
		CHECK(ioctl(one, NIOCREGIF, &r) == 0, "row %zu", i);
		CHECK(r.nr_arg2 == 1 && r.nr_tx_rings == 1, "row %zu: memory %u", i, r.nr_arg2);
		CHECK(r.nr_flags == rows[i].flags && r.nr_ringid == rows[i].ringid, "row %zu: what was asked stays", i);
		mem = mmap(NULL, r.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0);
		CHECK(mem != MAP_FAILED, "mmap");
		nifp = NETMAP_IF(mem, r.nr_offset);
		CHECK(nifp->ring_ofs[rows[i].tx] != 0, "row %zu: its ring", i);
		CHECK(rows[i].mode == NR_REG_NIC_SW || nifp->ring_ofs[1 - rows[i].tx] == 0, "row %zu: no other", i);
		munmap(mem, r.nr_memsize);
		close(one);
		CHECK(close(one) < 0 && errno == EBADF, "closed once");
	}
}

/* CSB mode, requested once the interface is open; kloop.c tests frames through a loop. */
static void
csb(void)
{
	static struct nm_csb_atok atok[2] __attribute__((aligned(64)));
	static struct nm_csb_ktoa ktoa[2] __attribute__((aligned(64)));
	struct nmreq_sync_kloop_start start = { .sleep_us = 100 };
	struct nmreq_opt_csb option = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB };
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC, .nr_flags = NR_EXCLUSIVE };
	struct nmreq_header h;
	struct port p;

	p = open_port_with(nic, r);
	CHECK(request(p.fd, "", NETMAP_REQ_SYNC_KLOOP_START, &start) < 0 && errno == EINVAL, "no CSB yet");
	option.csb_atok = (uintptr_t)atok;
	option.csb_ktoa = (uintptr_t)ktoa;
	header(&h, "", NETMAP_REQ_CSB_ENABLE, NULL);
	h.nr_options = (uintptr_t)&option;
	CHECK(ioctl(p.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(ioctl(p.fd, NIOCCTRL, &h) == 0 && option.nro_opt.nro_status == 0, "enable");
	CHECK(ktoa[0].hwtail == 1023 && atok[0].appl_need_kick == 1, "fresh entries");
	CHECK(ioctl(p.fd, NIOCTXSYNC, NULL) < 0 && errno == EBUSY, "no sync by the program");
	close_port(&p);
}

/* Extra buffers, and memory that the program provides. */
static void
memory(void)
{
	const size_t size = 16 << 20;
	struct nmreq_opt_extmem e = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_EXTMEM };
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC, .nr_extra_bufs = 100 };
	struct nmreq_header h;
	struct netmap_if *nifp;
	struct port p;
	char *own;
	int one;

	p = open_port_with(nic, r);
	CHECK(p.reg.nr_extra_bufs == 100 && p.nifp->ni_bufs_head != 0 && p.reg.nr_mem_id == 1, "extra buffers");
	close_port(&p);

	own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(own != MAP_FAILED, "memory");
	memset(&r, 0, sizeof(r));
	r.nr_mode = NR_REG_ALL_NIC;
	e.nro_usrptr = (uintptr_t)own;
	e.nro_info.nr_memsize = size;
	e.nro_info.nr_if_pool_objtotal = 4;
	e.nro_info.nr_if_pool_objsize = 1024;
	e.nro_info.nr_ring_pool_objtotal = 8;
	e.nro_info.nr_ring_pool_objsize = 5 * 4096;
	e.nro_info.nr_buf_pool_objtotal = 4096;
	e.nro_info.nr_buf_pool_objsize = 2048;
	header(&h, nic, NETMAP_REQ_REGISTER, &r);
	h.nr_options = (uintptr_t)&e;
	one = device();
	CHECK(ioctl(one, NIOCCTRL, &h) == 0 && e.nro_opt.nro_status == 0, "extmem");
	CHECK(r.nr_mem_id > 1, "a region of its own");
	nifp = NETMAP_IF(own, r.nr_offset);
	CHECK(nifp->ni_tx_rings == 1 && NETMAP_TXRING(nifp, 0)->nr_buf_size == 2048, "in the program's memory");
	close(one);
	munmap(own, size);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3, "an interface and a switch");
	alarm(60);
	nic = argv[1];
	snprintf(on_switch, sizeof(on_switch), "%s:%s", argv[2], nic);
	snprintf(none_on_switch, sizeof(none_on_switch), "%s:%s", argv[2], NONE);
	fd = device();
	facts(1, 1);
	CHECK(info_of(nic, 5, 3).nr_host_rx_rings == 3, "as it would be opened");
	CHECK(info_of(nic, 60000, 60000).nr_host_rx_rings == 60000, "however many");
	not_on_a_switch();
	not_there();
	while_open();
	with_host_rings();
	while_on_a_switch();
	legacy();
	csb();
	memory();
	/* As at the start. */
	facts(1, 1);
	return 0;
}
