/* The list of options of a request: its maximum length, its faults, and the final status of each option. Usage: options_list SWITCH
 * netmap copies request and options into one buffer of 4208 bytes: two pointers, the body, a table of six pointers, and a pointer before each
 * option; recognized options and the body together may have 4096 bytes. */
#include "common.h"

#define MANY 200
#define UNTOUCHED 0x5555u

static char port[64];

/* The longest list of unknown options of a registration: (4208 - 16 - 56 - 48) / 32. */
#define LONGEST 127

static struct nmreq_option list[MANY];

static void
unknown(unsigned count)
{
	unsigned i;

	memset(list, 0, sizeof(list));
	for (i = 0; i < count; i++) {
		list[i].nro_reqtype = 1000 + i;
		list[i].nro_status = UNTOUCHED;
		list[i].nro_next = i + 1 < count ? (uintptr_t)&list[i + 1] : 0;
	}
}

static int
with_options(const char *name, uint16_t type, void *body, void *options)
{
	struct nmreq_header h;
	int fd = device(), result, saved;

	header(&h, name, type, body);
	h.nr_options = (uintptr_t)options;
	result = ioctl(fd, NIOCCTRL, &h);
	saved = errno;
	CHECK(h.nr_reserved == 0 && h.nr_options == (uintptr_t)options, "the header comes back as it was");
	close(fd);
	errno = saved;
	return result;
}

static int
reg(const char *name, void *options)
{
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC };

	return with_options(name, NETMAP_REQ_REGISTER, &r, options);
}

static struct nmreq_opt_csb
csb(uint32_t size)
{
	struct nmreq_opt_csb c = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB, .nro_opt.nro_status = UNTOUCHED };

	c.nro_opt.nro_size = size;
	return c;
}

static void
how_long(void)
{
	struct nmreq_port_hdr hdr;
	unsigned i;

	unknown(LONGEST);
	REFUSED(EOPNOTSUPP, reg(port, list));
	for (i = 0; i < LONGEST; i++)
		CHECK(list[i].nro_status == EOPNOTSUPP, "option %u says %u", i, list[i].nro_status);
	unknown(LONGEST + 1);
	REFUSED(EMSGSIZE, reg(port, list));
	for (i = 0; i <= LONGEST; i++)
		CHECK(list[i].nro_status == UNTOUCHED, "nothing is said in option %u", i);
	/* A smaller body leaves room for more options. */
	unknown(LONGEST + 1);
	REFUSED(ENXIO, with_options(port, NETMAP_REQ_PORT_HDR_GET, memset(&hdr, 0, sizeof(hdr)), list));
	CHECK(list[LONGEST].nro_status == EOPNOTSUPP, "status %u", list[LONGEST].nro_status);
}

static void
loops(void)
{
	struct nmreq_opt_csb c = csb(0);

	unknown(3);
	list[2].nro_next = (uintptr_t)&list[0];
	REFUSED(EMSGSIZE, reg(port, list));
	CHECK(list[0].nro_status == UNTOUCHED && list[2].nro_status == UNTOUCHED, "nothing is said");
	c.nro_opt.nro_next = (uintptr_t)&c;
	REFUSED(EINVAL, reg(port, &c));
	CHECK(c.nro_opt.nro_status == EINVAL, "it meets itself: %u", c.nro_opt.nro_status);
}

static void
faults(void)
{
	struct nmreq_opt_csb first = csb(0), second = csb(0);

	/* Unknown, csb, csb again, unknown: options before the fault have status 0, those after it none. */
	unknown(2);
	list[0].nro_next = (uintptr_t)&first;
	first.nro_opt.nro_next = (uintptr_t)&second;
	second.nro_opt.nro_next = (uintptr_t)&list[1];
	REFUSED(EINVAL, reg(port, list));
	CHECK(list[0].nro_status == 0 && list[1].nro_status == UNTOUCHED, "%u, %u", list[0].nro_status, list[1].nro_status);
	CHECK(first.nro_opt.nro_status == EINVAL && second.nro_opt.nro_status == EINVAL, "both are at fault");
	/* Two unknown options of one type are not a fault, as they are not read. */
	unknown(2);
	list[1].nro_reqtype = list[0].nro_reqtype;
	REFUSED(EOPNOTSUPP, reg(port, list));
	unknown(2);
	list[1].nro_reqtype = 0;
	REFUSED(EINVAL, reg(port, list));
	CHECK(list[0].nro_status == 0 && list[1].nro_status == EINVAL, "%u, %u", list[0].nro_status, list[1].nro_status);
	unknown(2);
	list[1].nro_next = 16;
	REFUSED(EFAULT, reg(port, list));
	CHECK(list[0].nro_status == 0 && list[1].nro_status == 0, "%u, %u", list[0].nro_status, list[1].nro_status);
	/* The size of a known option counts, even if it has no meaning; that of an unknown one does not. */
	first = csb(4097);
	REFUSED(EMSGSIZE, reg(port, &first));
	CHECK(first.nro_opt.nro_status == 0, "status %u", first.nro_opt.nro_status);
	unknown(1);
	list[0].nro_size = (uint64_t)-1;
	REFUSED(EOPNOTSUPP, reg(port, list));
}

static void
variable_size(void)
{
	static struct {
		struct nmreq_option o;
		char rest[4200];
	} ev;

	/* Body and option: 56 + 4040 is 4096. The request is executed without a handler for this option. */
	ev.o.nro_reqtype = NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS;
	ev.o.nro_size = 4040;
	REFUSED(EOPNOTSUPP, reg(port, &ev));
	ev.o.nro_size = 4041;
	REFUSED(EMSGSIZE, reg(port, &ev));
	CHECK(ev.o.nro_status == 0, "status %u", ev.o.nro_status);
	/* A hundred unknown ones leave 4208 - 16 - 56 - 48 - 3200 bytes of the buffer, for a pointer and this one. */
	unknown(100);
	list[99].nro_next = (uintptr_t)&ev;
	ev.o.nro_size = 880;
	REFUSED(EOPNOTSUPP, reg(port, list));
	ev.o.nro_size = 881;
	REFUSED(EMSGSIZE, reg(port, list));
}

static void
order(void)
{
	struct nmreq_opt_csb c = csb(0);
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC };
	struct nmreq_header h;
	int fd;

	/* A fault of the port precedes an unknown option. */
	unknown(1);
	REFUSED(ENXIO, reg("nosuchif0", list));
	CHECK(list[0].nro_status == EOPNOTSUPP, "status %u", list[0].nro_status);
	/* CSB mode needs NR_EXCLUSIVE, and reports its absence in its own status. */
	unknown(1);
	list[0].nro_next = (uintptr_t)&c;
	REFUSED(EINVAL, reg(port, list));
	CHECK(list[0].nro_status == EOPNOTSUPP && c.nro_opt.nro_status == EINVAL, "%u, %u", list[0].nro_status,
	      c.nro_opt.nro_status);
	/* The body is read before the options. */
	unknown(1);
	REFUSED(EFAULT, with_options(port, NETMAP_REQ_REGISTER, (void *)16, list));
	CHECK(list[0].nro_status == UNTOUCHED, "status %u", list[0].nro_status);
	/* A second registration: the option was not read. */
	fd = device();
	CHECK(request(fd, port, NETMAP_REQ_REGISTER, &r) == 0, "register");
	header(&h, port, NETMAP_REQ_REGISTER, &r);
	c = csb(0);
	h.nr_options = (uintptr_t)&c;
	REFUSED(EBUSY, ioctl(fd, NIOCCTRL, &h));
	CHECK(c.nro_opt.nro_status == EOPNOTSUPP, "status %u", c.nro_opt.nro_status);
	close(fd);
}

/* Requests without options of their own are executed nevertheless. */
static void
ignored(void)
{
	struct nmreq_port_info_get info = { 0 };
	struct nmreq_opt_csb c = csb(0);

	unknown(1);
	list[0].nro_next = (uintptr_t)&c;
	CHECK(with_options(port, NETMAP_REQ_PORT_INFO_GET, &info, list) == 0 && info.nr_memsize, "info");
	CHECK(list[0].nro_status == EOPNOTSUPP && c.nro_opt.nro_status == EOPNOTSUPP, "nobody recognized them");
	unknown(1);
	REFUSED(EINVAL, with_options(port, 77, NULL, list));
	CHECK(list[0].nro_status == EOPNOTSUPP, "no such request");
	REFUSED(EINVAL, with_options(port, 77, &info, list));
}

static void
headers(void)
{
	struct nmreq_port_info_get info = { 0 };
	struct nmreq_header h;
	int fd = device();

	header(&h, port, NETMAP_REQ_PORT_INFO_GET, &info);
	h.nr_reserved = 1;
	REFUSED(EINVAL, ioctl(fd, NIOCCTRL, &h));
	h.nr_reserved = 0;
	memset(h.nr_name, 'x', sizeof(h.nr_name));
	REFUSED(ENXIO, ioctl(fd, NIOCCTRL, &h));
	CHECK(h.nr_name[sizeof(h.nr_name) - 1] == 0 && h.nr_name[sizeof(h.nr_name) - 2] == 'x', "the name is ended");
	close(fd);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 2, "usage");
	snprintf(port, sizeof(port), "%.40s:options", argv[1]);
	how_long();
	loops();
	faults();
	variable_size();
	order();
	ignored();
	headers();
	return 0;
}
