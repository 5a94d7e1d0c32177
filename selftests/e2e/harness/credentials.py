# SPDX-License-Identifier: GPL-2.0-only
"""Certificates and pre-shared keys, as QEMU and libvirt have them."""
import os
import subprocess


def _openssl(*words, given=None):
    subprocess.run(['openssl', *words], check=True, input=given, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    """A CA, with its files in this directory."""

    def __init__(self, directory, name):
        self.key, self.cert, self.name = f'{directory}/{name}-key.pem', f'{directory}/{name}-cert.pem', name
        os.makedirs(directory, exist_ok=True)
        _openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30',
                 '-subj', f'/CN={name}', '-keyout', self.key, '-out', self.cert)

    def directory(self, path, names='IP:127.0.0.1,IP:10.77.0.1,IP:10.77.0.2,DNS:localhost', days=30):
        """With a server's certificate for these names, and a client's."""
        os.makedirs(path, exist_ok=True)
        with open(self.cert, encoding='ascii') as ca, open(f'{path}/ca-cert.pem', 'w', encoding='ascii') as f:
            f.write(ca.read())
        for side, purpose in (('server', 'serverAuth'), ('client', 'clientAuth')):
            key, cert, request = (f'{path}/{side}-{what}.pem' for what in ('key', 'cert', 'request'))
            _openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', f'/CN=the {side}',
                     '-keyout', key, '-out', request)
            _openssl('x509', '-req', '-in', request, '-CA', self.cert, '-CAkey', self.key, '-CAcreateserial', '-days', str(days),
                     '-extfile', '/dev/stdin', '-out', cert,
                     given=f'subjectAltName={names}\nextendedKeyUsage={purpose}\nkeyUsage=digitalSignature\n')
        return path

    def revoke(self, cert, path):
        """Writes a list of revoked certificates, with this one."""
        index, settings = f'{self.cert}.index', f'{self.cert}.conf'
        with open(index, 'a', encoding='ascii'), open(settings, 'w', encoding='ascii') as f:
            f.write(f'[ca]\ndefault_ca = it\n[it]\ndatabase = {index}\ndefault_md = sha256\ndefault_crl_days = 30\n')
        for words in (['-revoke', cert], ['-gencrl', '-out', path]):
            _openssl('ca', '-config', settings, '-keyfile', self.key, '-cert', self.cert, *words)


def shared_key(path, user='godwit'):
    """As psktool writes it."""
    with open(path, 'w', encoding='ascii') as f:
        f.write(f'{user}:{os.urandom(32).hex()}\n')
    os.chmod(path, 0o600)
    return path
