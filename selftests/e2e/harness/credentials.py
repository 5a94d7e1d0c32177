# SPDX-License-Identifier: GPL-2.0-only
"""Certificates and pre-shared keys, as QEMU and libvirt have them."""
import os
import subprocess
import time

MONTH = 30 * 86400


def _openssl(*words, given=None):
    subprocess.run(['openssl', *words], check=True, input=given, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    """A CA, with its files in this directory."""

    def __init__(self, directory, name):
        self.key, self.cert, self.name = f'{directory}/{name}-key.pem', f'{directory}/{name}-cert.pem', name
        os.makedirs(directory, exist_ok=True)
        _openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30',
                 '-subj', f'/CN={name}', '-keyout', self.key, '-out', self.cert)

    def directory(self, path, names='IP:127.0.0.1,IP:10.77.0.1,IP:10.77.0.2,DNS:localhost', expires=None):
        """With a server's certificate for these names, and a client's. expires: in seconds since 1970; None: in a month."""
        until = time.gmtime(expires or time.time() + MONTH)
        os.makedirs(path, exist_ok=True)
        with open(self.cert, encoding='ascii') as ca, open(f'{path}/ca-cert.pem', 'w', encoding='ascii') as f:
            f.write(ca.read())
        for side, purpose in (('server', 'serverAuth'), ('client', 'clientAuth')):
            key, cert, request = (f'{path}/{side}-{what}.pem' for what in ('key', 'cert', 'request'))
            _openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', f'/CN=the {side}',
                     '-keyout', key, '-out', request)
            self._ca('-batch', '-notext', '-outdir', path, '-in', request, '-extfile', '/dev/stdin', '-out', cert,
                     '-enddate', time.strftime('%Y%m%d%H%M%SZ', until),
                     given=f'subjectAltName={names}\nextendedKeyUsage={purpose}\nkeyUsage=digitalSignature\n')
        return path

    def _ca(self, *words, given=None):
        index, settings = f'{self.cert}.index', f'{self.cert}.conf'
        with open(index, 'a', encoding='ascii'), open(settings, 'w', encoding='ascii') as f:
            f.write(f'[ca]\ndefault_ca = it\n[it]\ndatabase = {index}\nunique_subject = no\nrand_serial = yes\ndefault_md = sha256\n'
                    'default_crl_days = 30\npolicy = any\n[any]\ncommonName = supplied\n')
        _openssl('ca', '-config', settings, '-keyfile', self.key, '-cert', self.cert, *words, given=given)

    def revoke(self, cert, path):
        """Writes a list of revoked certificates, with this one."""
        for words in (['-revoke', cert], ['-gencrl', '-out', path]):
            self._ca(*words)


def shared_key(path, user='godwit'):
    """As psktool writes it."""
    with open(path, 'w', encoding='ascii') as f:
        f.write(f'{user}:{os.urandom(32).hex()}\n')
    os.chmod(path, 0o600)
    return path
