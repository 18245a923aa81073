/* extmem with numbers left zero: they become netmap's defaults, objects that do not fit are omitted, and the same memory is the same region.
 * Usage: extmem_defaults SWITCH */
#include "common.h"

#define SIZE (16u << 20)

static char ports[3][64];

static struct nmreq_opt_extmem
option(void *mem, uint64_t size)
{
	struct nmreq_opt_extmem e = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_EXTMEM, .nro_usrptr = (uintptr_t)mem };

	e.nro_info.nr_memsize = size;
	return e;
}

static int
reg(const char *name, struct nmreq_register *r, struct nmreq_opt_extmem *e)
{
	memset(r, 0, sizeof(*r));
	r->nr_mode = NR_REG_ALL_NIC;
	r->nr_tx_slots = r->nr_rx_slots = 256;
	return reg_with(name, r, e);
}

static char *
memory(void)
{
	char *mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0);

	CHECK(mem != MAP_FAILED, "memory");
	return mem;
}

/* Frames go from one port in that memory to another. */
static void
works(char *mem, int from, const struct nmreq_register *a, int to, const struct nmreq_register *b)
{
	struct netmap_ring *tx = NETMAP_TXRING(NETMAP_IF(mem, a->nr_offset), 0);
	struct netmap_ring *rx = NETMAP_RXRING(NETMAP_IF(mem, b->nr_offset), 0);
	uint32_t sent = 0, got = 0;

	while (got < 500) {
		put_frames(tx, &sent, got + 100 < 500 ? got + 100 : 500);
		CHECK(ioctl(from, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(to, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(rx, &got);
	}
}

static void
defaults(void)
{
	char *mem = memory();
	struct nmreq_opt_extmem e = option(mem, SIZE);
	struct nmreq_register r;
	int fd = reg(ports[0], &r, &e);

	CHECK(fd >= 0 && e.nro_opt.nro_status == 0, "nothing but the size");
	CHECK(e.nro_info.nr_if_pool_objtotal == 2 && e.nro_info.nr_if_pool_objsize == 1024, "interfaces");
	CHECK(e.nro_info.nr_ring_pool_objtotal == 4 && e.nro_info.nr_ring_pool_objsize == 5 * 4096, "rings");
	CHECK(e.nro_info.nr_buf_pool_objtotal == 4098 && e.nro_info.nr_buf_pool_objsize == 2048, "buffers");
	CHECK(e.nro_info.nr_memsize == SIZE && e.nro_info.nr_mem_id == 0 && e.nro_info.nr_buf_pool_offset == 0,
	      "and nothing else is written");
	CHECK(NETMAP_TXRING(NETMAP_IF(mem, r.nr_offset), 0)->nr_buf_size == 2048, "they are what is there");
	close(fd);
	e = option(mem, SIZE);
	e.nro_info.nr_ring_pool_objtotal = 7;
	e.nro_info.nr_buf_pool_objsize = 4096;
	fd = reg(ports[0], &r, &e);
	CHECK(fd >= 0 && e.nro_info.nr_ring_pool_objtotal == 7 && e.nro_info.nr_buf_pool_objsize == 4096, "some");
	CHECK(e.nro_info.nr_if_pool_objtotal == 2 && e.nro_info.nr_buf_pool_objtotal == 4098, "the rest is filled in");
	CHECK(NETMAP_TXRING(NETMAP_IF(mem, r.nr_offset), 0)->nr_buf_size == 4096, "buffers of that size");
	close(fd);
	munmap(mem, SIZE);
}

static void
bad(void)
{
	char *mem = memory();
	struct nmreq_opt_extmem e = option(mem, SIZE);
	struct nmreq_register r;
	int fd;

	e.nro_info.nr_memsize = 0;
	REFUSED(ENOMEM, reg(ports[0], &r, &e));
	CHECK(e.nro_opt.nro_status == ENOMEM && e.nro_info.nr_if_pool_objtotal == 0, "nothing is written on failure");
	e = option(NULL, SIZE);
	REFUSED(EFAULT, reg(ports[0], &r, &e));
	CHECK(e.nro_opt.nro_status == EFAULT, "status %u", e.nro_opt.nro_status);
	/* Two interfaces and four rings need more than that. */
	e = option(mem, 64 << 10);
	REFUSED(EINVAL, reg(ports[0], &r, &e));
	/* Too few buffers for the rings. */
	e = option(mem, 512 << 10);
	REFUSED(ENOMEM, reg(ports[0], &r, &e));
	/* Memory that begins within a page counts from the start of that page. */
	e = option(mem + 100, SIZE - 4096);
	fd = reg(ports[0], &r, &e);
	CHECK(fd >= 0 && NETMAP_IF(mem, r.nr_offset)->ni_version == NETMAP_API, "unaligned");
	close(fd);
	munmap(mem, SIZE);
}

/* As in netmap, the same memory is the same region: the second port is placed beside the first. */
static void
twice(void)
{
	char *mem = memory();
	struct nmreq_opt_extmem e = option(mem, SIZE), f = e;
	struct nmreq_register a, b;
	int one = reg(ports[0], &a, &e), two = reg(ports[1], &b, &f);

	CHECK(one >= 0 && two >= 0, "both");
	CHECK(a.nr_mem_id == b.nr_mem_id && a.nr_offset != b.nr_offset, "regions %u and %u", a.nr_mem_id, b.nr_mem_id);
	works(mem, one, &a, two, &b);
	close(one);
	close(two);
	/* The region ends with its last port; the memory can then be used for another region. */
	e = option(mem, SIZE);
	one = reg(ports[2], &b, &e);
	CHECK(one >= 0 && NETMAP_IF(mem, b.nr_offset)->ni_version == NETMAP_API, "and again");
	close(one);
	munmap(mem, SIZE);
	/* Other memory at the same address is another region. */
	CHECK(mmap(mem, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED | MAP_FIXED, -1, 0) == mem, "there");
	e = option(mem, SIZE);
	one = reg(ports[0], &a, &e);
	CHECK(one >= 0 && a.nr_mem_id != b.nr_mem_id, "region %u", a.nr_mem_id);
	CHECK(NETMAP_IF(mem, a.nr_offset)->ni_version == NETMAP_API, "it is there");
	close(one);
	munmap(mem, SIZE);
}

int
main(int argc, char **argv)
{
	int i;

	CHECK(argc == 2, "usage");
	for (i = 0; i < 3; i++)
		snprintf(ports[i], sizeof(ports[i]), "%.40s:ext%d", argv[1], i);
	defaults();
	bad();
	twice();
	return 0;
}
